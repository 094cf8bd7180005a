#include "daemon/telemetry/series/step_columns.hpp"

#include "job/base/json.hpp"
#include "job/base/text.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::telemetry {
namespace {

constexpr Start kFirst{1, 1};

class StepColumnsTest : public testing::Test {
  protected:
    void step_of_all(std::int64_t step, std::uint32_t ranks = 4, Start start = kFirst) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            columns_.add(start, rank, step, 10.0 + rank, 1.0 + rank);
        }
    }
    std::int64_t taken() {
        const StepColumn* column = columns_.take();
        return column == nullptr ? -1 : column->step;
    }
    StepColumns columns_{4};
};

TEST_F(StepColumnsTest, AStepIsTakenOnceAllRanksHaveReportedIt) {
    step_of_all(5, 3);
    EXPECT_EQ(taken(), -1);
    columns_.add(kFirst, 3, 5, 20, 9);
    const StepColumn* column = columns_.take();
    ASSERT_NE(column, nullptr);
    EXPECT_EQ(column->step, 5);
    EXPECT_EQ(column->count, 4U);
    EXPECT_EQ(column->time, 20);
    EXPECT_EQ(column->values, (std::vector<float>{1, 2, 3, 9}));
    EXPECT_EQ(taken(), -1) << "once";
    step_of_all(5);
    EXPECT_EQ(taken(), -1) << "again is no news";
}

TEST_F(StepColumnsTest, OfSeveralCompleteOnesTheNewestIsTaken) {
    step_of_all(1);
    step_of_all(2);
    step_of_all(3, 2);
    EXPECT_EQ(taken(), 2);
    columns_.add(kFirst, 2, 3, 0, 1);
    columns_.add(kFirst, 3, 3, 0, 1);
    EXPECT_EQ(taken(), 3);
}

TEST_F(StepColumnsTest, ARankThatReportsNothingIsWaitedForAWhile) {
    for (std::int64_t step = 1; step <= 32; ++step) {
        step_of_all(step, 3);
    }
    EXPECT_EQ(taken(), -1);
    step_of_all(33, 3);
    EXPECT_EQ(taken(), 33) << "it does not take part";
    step_of_all(34, 3);
    EXPECT_EQ(taken(), 34);
    columns_.add(kFirst, 3, 34, 0, 1);  // it does after all
    step_of_all(35, 3);
    EXPECT_EQ(taken(), -1);
    columns_.add(kFirst, 3, 35, 0, 1);
    EXPECT_EQ(taken(), 35);
}

TEST_F(StepColumnsTest, ABatchOfOneNodeIsNoStepOfAll) {
    for (std::int64_t step = 1; step <= 20; ++step) {
        step_of_all(step, 2);
    }
    EXPECT_EQ(taken(), -1) << "the other node's batch is under way";
    for (std::int64_t step = 1; step <= 20; ++step) {
        step_of_all(step);
    }
    EXPECT_EQ(taken(), 20);
}

TEST_F(StepColumnsTest, NodesWhoseBatchesLieApartAreStillOneJob) {
    // Watched since the first node had sent its beginning: of that there is the second's alone.
    for (std::int64_t step = 1; step <= 20; ++step) {
        columns_.add(kFirst, 2, step, 0, 1);
        columns_.add(kFirst, 3, step, 0, 1);
    }
    for (std::int64_t step = 21; step <= 40; ++step) {
        step_of_all(step, 2);
    }
    EXPECT_EQ(taken(), -1) << "both take part";
    for (std::int64_t step = 21; step <= 40; ++step) {
        step_of_all(step);
    }
    EXPECT_EQ(taken(), 40);
}

TEST_F(StepColumnsTest, ANewGenerationBeginsAnew) {
    step_of_all(10);
    EXPECT_EQ(taken(), 10);
    step_of_all(4, 4, {1, 2});
    step_of_all(11);
    EXPECT_EQ(taken(), 4) << "the earlier one's reports came late";
}

TEST(StepJson, HasACellARankAndTheWorstByName) {
    StepColumn column;
    column.start = {2, 3};
    column.step = 7;
    column.time = 1.5;
    column.count = 5;
    column.values = {1.0F, 2.0F, kNoStepValue, std::nanf(""), 3.0F, 1.5F};
    const Json json =
        parse_json(step_json("ls-1", "busy_seconds", column, 3)).value_or(Json::object());
    EXPECT_EQ(json["id"], "ls-1");
    EXPECT_EQ(json["attempt"], 2);
    EXPECT_EQ(json["generation"], 3);
    EXPECT_EQ(json["step"], 7);
    EXPECT_EQ(json["ranks"], 6);
    EXPECT_EQ(json["count"], 4);
    EXPECT_EQ(json["nonfinite"], 1);
    EXPECT_EQ(json["low"], 1.0);
    EXPECT_EQ(json["high"], 3.0);
    const std::string cells = base64_decode(json["cells"].get<std::string>()).value();
    const std::vector<int> shades{1, 128, 0, 255, 254, 64};
    ASSERT_EQ(cells.size(), shades.size());
    for (std::size_t i = 0; i < shades.size(); ++i) {
        EXPECT_NEAR(static_cast<unsigned char>(cells[i]), shades[i], 1) << i;
    }
    EXPECT_EQ(json["quantiles"],
              (Json{{"min", 1.0}, {"p5", 1.0}, {"median", 1.75}, {"p95", 3.0}, {"max", 3.0}}));
    EXPECT_EQ(json["worst"][0], (Json{{"rank", 3}, {"value", "nan"}}));
    EXPECT_EQ(json["worst"][1], (Json{{"rank", 4}, {"value", 3.0}}));
    const Json waits =
        parse_json(step_json("ls-1", "comm_wait_seconds", column, 2)).value_or(Json::object());
    EXPECT_EQ(waits["worst"][1]["rank"], 0) << "who waits least is waited for";
}

}  // namespace
}  // namespace lockstep::telemetry
