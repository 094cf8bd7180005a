// What of a job's stored telemetry comes back into memory, and how its state is written down.
#include "daemon/control/history/history_restore.hpp"

#include "daemon/store/history_records.hpp"
#include "tests/unit/model/history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

using telemetry::JobSeries;
using testing::ElementsAre;

ChunkRow chunk(std::int64_t id, std::uint32_t block, std::int64_t samples) {
    ChunkRow out;
    out.id = id;
    out.block = block;
    out.samples = samples;
    return out;
}

std::vector<std::pair<std::int64_t, bool>> chosen(std::vector<ChunkRow> chunks,
                                                  std::int64_t budget) {
    std::vector<std::pair<std::int64_t, bool>> out;
    for (const StoredChunk& one : choose_chunks(std::move(chunks), budget)) {
        out.emplace_back(one.row.id, one.whole);
    }
    return out;
}

TEST(ChooseChunks, TakesAllThatFit) {
    EXPECT_THAT(chosen({chunk(1, 0, 10), chunk(2, 0, 10)}, 20),
                ElementsAre(std::pair{1, true}, std::pair{2, true}));
    EXPECT_TRUE(chosen({}, 20).empty());
}

// Only the last of the newest attempt was known when rows were read back.
TEST(Suspensions, AreThoseOfAllAttemptsInSeconds) {
    History history;
    EXPECT_THAT(suspensions(history.job), ElementsAre());
    std::vector<double> began;
    for (const std::int32_t attempt : {1, 2}) {
        history.running();
        for (const bool over : {false, true, false, true}) {
            history.must(event::Suspended{attempt, over, "it is suspended"});
            if (!over) {
                began.push_back(static_cast<double>(history.now) / 1000.0);
            }
        }
        history.must(history.end_of_generation(CauseClass::node_lost));
        history.attempt_ends(CauseClass::node_lost);
    }
    ASSERT_EQ(began.size(), 4U);
    EXPECT_EQ(suspensions(history.job), began);
}

// The job had nothing in memory then, and its series answered with nothing.
TEST(ChooseChunks, TakesTheNewestRowsOfANewestChunkThatIsTooLarge) {
    EXPECT_THAT(chosen({chunk(1, 0, 10), chunk(2, 0, 21)}, 20), ElementsAre(std::pair{2, false}));
}

// Ranks whose chunk is older than the budget reaches were shown as ones that never reported.
TEST(ChooseChunks, TakesTheNewestOfEveryBlock) {
    EXPECT_THAT(chosen({chunk(1, 0, 10), chunk(2, 1, 10), chunk(3, 0, 10), chunk(4, 1, 10)}, 20),
                ElementsAre(std::pair{3, true}, std::pair{4, true}));
    EXPECT_THAT(chosen({chunk(1, 0, 10), chunk(2, 1, 10), chunk(3, 1, 10), chunk(4, 1, 10)}, 20),
                ElementsAre(std::pair{1, false}, std::pair{3, true}, std::pair{4, true}));
}

TEST(ChooseChunks, LeavesNoGapInABlock) {
    EXPECT_THAT(chosen({chunk(1, 0, 1), chunk(2, 0, 100), chunk(3, 0, 10)}, 20),
                ElementsAre(std::pair{3, true}));
}

JobSeries some_series() {
    JobSeries out{4};
    out.restore_seen(1, 0, 7);
    out.restore_seen(2, 3, 18'446'744'073'709'551'615U);
    out.restore_seen(3, 1, 5);
    GenerationReport report;
    report.attempt = 3;
    report.generation = 2;
    report.first_step = 4;
    report.last_step = 9;
    report.first_at = 1'700'000'000'000;
    report.last_at = 1'700'000'000'999;
    report.checkpoint_seconds = 0.1;
    out.restore(report);
    return out;
}

TEST(HistoryState, ReadsBackWithTheTwoNewestAttempts) {
    const std::string text = encode_state(some_series());
    EXPECT_EQ(text,
              "seen 2 3 18446744073709551615\nseen 3 1 5\n"
              "generation 3 2 4 9 1700000000000 1700000000999 0.1\n");
    JobSeries back{4};
    ASSERT_TRUE(restore_state(text, back).has_value());
    EXPECT_EQ(encode_state(back), text);
}

TEST(HistoryState, ABadLineIsAnErrorAndWhatCameBeforeItHolds) {
    for (const char* bad : {"seen 1 1\n", "seen 1 1 1 1\n", "seen a 1 1\n", "seen -1 -1 1\n",
                            "other 1\n", "seen 1 1 1", "generation 1 1 1 1 1 1 x\n", "\n",
                            "generation 99999999999 1 1 1 1 1 1\n"}) {
        JobSeries back{4};
        EXPECT_FALSE(restore_state(std::string{"seen 1 2 3\n"} + bad, back).has_value()) << bad;
        EXPECT_EQ(back.last_batch(1, 2), 3U);
    }
}

// The sum was infinite, and the daemon ended at every start.
TEST(HistoryState, AnInfiniteSumEndsNothing) {
    JobSeries back{4};
    ASSERT_TRUE(restore_state("generation 1 1 0 9 5 6 inf\n", back).has_value());
    ASSERT_TRUE(restore_state("generation 1 2 0 9 5 6 1e300\n", back).has_value());
    ASSERT_EQ(back.generations().size(), 2U);
    EXPECT_EQ(back.generations()[0].checkpoint_seconds, 0);
    EXPECT_EQ(back.generations()[1].checkpoint_seconds, 1e15);
}

TEST(HistoryState, IsReadFromTheJsonOfTheFirstDatabases) {
    JobSeries back{4};
    ASSERT_TRUE(restore_state(R"({"seen":[[2,3,18446744073709551615],[3,1,5]],)"
                              R"("generations":[[3,2,4,9,1700000000000,1700000000999,0.1]]})",
                              back)
                    .has_value());
    EXPECT_EQ(encode_state(back), encode_state(some_series()));
    JobSeries none{4};
    ASSERT_TRUE(restore_state(R"({"seen":[],"generations":[]})", none).has_value());
    ASSERT_TRUE(
        restore_state(R"({"seen":[],"generations":[[1,1,-1,-1,0,0,null]]})", none).has_value());
    EXPECT_EQ(none.generations()[0].checkpoint_seconds, 0);
    for (const char* bad : {"{\"seen\":[[1,0,7]", "{\"seen\":[[1,\"x\",7]]}", "{\"seen\":[[1,0"}) {
        JobSeries damaged{4};
        EXPECT_FALSE(restore_state(bad, damaged).has_value()) << bad;
    }
}

// JSON of more than 100,000 values was not read back: every batch was taken again.
TEST(HistoryState, OfThousandsOfNodesIsReadBackFromBothForms) {
    std::string json = R"({"seen":[)";
    for (int node = 0; node < 40'000; ++node) {
        json += (node == 0 ? "[1," : ",[1,") + std::to_string(node) + ",9]";
    }
    json += R"(],"generations":[]})";
    JobSeries back{4};
    ASSERT_TRUE(restore_state(json, back).has_value());
    EXPECT_EQ(back.last_batch(1, 39'999), 9U);
    JobSeries again{4};
    ASSERT_TRUE(restore_state(encode_state(back), again).has_value());
    EXPECT_EQ(again.seen(), back.seen());
}

}  // namespace
}  // namespace lockstep
