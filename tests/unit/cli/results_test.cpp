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
    EXPECT_EQ(loss.nonfinite, "NaN");  // a daemon that has kept no word for it
    EXPECT_EQ(loss.lowest, 0.4);
    EXPECT_EQ(loss.highest, 2.0);
    EXPECT_FALSE(reached(Json::object()).last.has_value());
}

// The newest finite value was shown, as if that were where the training stands.
TEST(Results, ALossThatEndedAsNanSaysSoAndSinceWhen) {
    const Reached loss = reached(Json::parse(
        R"({"series":[{"rank":0,"points":[[1,0.5,0.5,0.5],[2,null,null,null],[3,0.25,0.25,0.25],
            [4,null,null,null],[5,null,null,null]],
            "nonfinite":[[2,"inf"],[4,"nan"],[5,"nan"]],"nonfinite_total":3}]})"));
    EXPECT_EQ(loss.nonfinite, "NaN");
    EXPECT_EQ(loss.nonfinite_from, 4);
    const auto lines = results_view(Terminal{}, {{"loss", loss}});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0], "loss          NaN since step 4, lowest 0.2500");
}

TEST(Results, NothingFiniteAtAllIsAResultAsWell) {
    const Reached loss = reached(Json::parse(
        R"({"series":[{"rank":0,"points":[[7,null,null,null]],"nonfinite":[[7,"-inf"]]}]})"));
    const auto lines = results_view(Terminal{}, {{"loss", loss}});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0], "loss          -inf since step 7");
}

TEST(Results, WhereItIsNotKnownSinceWhenNothingIsSaid) {
    // A point that has finite values before its last one; and one whose values were not kept.
    for (const char* points :
         {R"([[9,0.25,0.5,null]],"nonfinite":[[3,"nan"],[9,"nan"]])",
          R"([[8,0.25,0.5,0.5],[900,null,null,null]],"nonfinite":[[3,"nan"]])"}) {
        const Reached loss =
            reached(Json::parse(R"({"series":[{"rank":0,"points":)" + std::string(points) + "}]}"));
        EXPECT_EQ(loss.nonfinite, "NaN");
        EXPECT_EQ(results_view(Terminal{}, {{"loss", loss}}).front(),
                  "loss          NaN, lowest 0.2500");
    }
}

TEST(Results, AfterNanAFiniteLossIsAFiniteLoss) {
    const Reached loss = reached(Json::parse(
        R"({"series":[{"rank":0,"points":[[1,null,null,null],[2,0.5,0.5,0.5]],
            "nonfinite":[[1,"nan"]]}]})"));
    EXPECT_EQ(loss.nonfinite, "");
    EXPECT_EQ(loss.last, 0.5);
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

// It was the best of the sweep with the loss that it had before.
TEST(Results, OfASweepThoseThatEndedAsNanAreLast) {
    const auto lines =
        sweep_table(Terminal{}, {{member("ls-A", 10, "succeeded"), {0.125, 0.0625, 3, "NaN", 40}},
                                 {member("ls-B", 0.1, "queued"), {}},
                                 {member("ls-C", 0.01, "succeeded"), {0.5, 0.25, 3}}});
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines[1], "ls-C           0.01  succeeded    10     0.5000     0.2500");
    EXPECT_EQ(lines[2], "ls-B            0.1  queued       10          -          -");
    EXPECT_EQ(lines[3], "ls-A           10.0  succeeded    10        NaN     0.0625");
}

}  // namespace
}  // namespace lockstep::cli
