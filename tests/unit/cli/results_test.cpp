#include "job/cli/results.hpp"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

Json member(const std::string& id, double rate, const char* state) {
    return {{"id", id},
            {"state", state},
            {"step", 10},
            {"sweep", {{"id", id}, {"parameters", {{"train.learning_rate", rate}}}}}};
}

TEST(Results, AreTheNewestAndTheBestFiniteValue) {
    const Reached loss = reached(
        Json::parse(R"({"series":[{"rank":0,"points":[[1,0.5,2.0,0.5],[2,0.4,null,null]]}]})"));
    EXPECT_EQ(loss.last, 0.5);
    EXPECT_EQ(loss.lowest, 0.4);
    EXPECT_EQ(loss.highest, 2.0);
    EXPECT_FALSE(reached(Json::object()).last.has_value());
}

TEST(Results, LossComesFirstAndOnlyMeasuresOfQualityAreShown) {
    const Json known = Json::parse(
        R"({"items":["accuracy","busy_seconds","loss","loss_scale","step_seconds","val_loss"]})");
    EXPECT_EQ(metrics_of_interest(known),
              (std::vector<std::string>{"loss", "val_loss", "accuracy"}));
}

TEST(Results, AreLinesForShow) {
    const auto lines = results_view(
        Terminal{},
        {{"loss", {0.25, 0.125, 3}}, {"accuracy", {0.5, 0.25, 0.75}}, {"val_loss", {}}});
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0], "loss          0.2500, lowest 0.1250");
    EXPECT_EQ(lines[1], "accuracy      0.5000, highest 0.7500");
}

TEST(Results, ASweepHasItsParametersAndTheBestFirst) {
    const auto lines =
        sweep_table(Terminal{}, {{member("ls-A", 0.1, "failed"), {}},
                                 {member("ls-B", 0.01, "succeeded"), {0.5, 0.25, 3}},
                                 {member("ls-C", 0.001, "succeeded"), {0.125, 0.125, 3}}});
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines[0], "ID    learning_rate  STATE      STEP  LAST LOSS  BEST LOSS");
    EXPECT_EQ(lines[1], "ls-C          0.001  succeeded    10     0.1250     0.1250");
    EXPECT_EQ(lines[2], "ls-B           0.01  succeeded    10     0.5000     0.2500");
    EXPECT_EQ(lines[3], "ls-A            0.1  failed       10          -          -");
}

}  // namespace
}  // namespace lockstep::cli
