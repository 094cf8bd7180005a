#include "daemon/telemetry/series/step_times.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::telemetry {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kWidth = 1.1;  // of a bucket, and a bit

class StepTimesTest : public ::testing::Test {
  protected:
    // The next step, so long after the one before.
    void step(double after, double says = kNone, std::int64_t more = 1) {
        time_ += after;
        step_ += more;
        times_.note({1, generation_}, step_, time_, says, still_at_);
    }

    StepTimes times_;
    std::uint32_t generation_ = 1;
    double time_ = 1e9;
    std::int64_t step_ = 0;
    double still_at_ = 0;
};

TEST_F(StepTimesTest, APauseInEveryFiftiethStepIsInThe99thPercentile) {
    EXPECT_EQ(times_.p99(), 0);
    for (int number = 0; number < 1000; ++number) {
        step(number % 50 == 49 ? 160 : 10);
    }
    EXPECT_GE(times_.p99(), 160);
    EXPECT_LE(times_.p99(), 160 * kWidth);
}

TEST_F(StepTimesTest, APauseInEveryFiveHundredthIsNot) {
    for (int number = 0; number < 1000; ++number) {
        step(number % 500 == 499 ? 160 : 10);
    }
    EXPECT_GE(times_.p99(), 10);
    EXPECT_LE(times_.p99(), 10 * kWidth);
}

TEST_F(StepTimesTest, OnlyTheNewestCount) {
    for (int number = 0; number < 100; ++number) {
        step(100);
    }
    for (std::size_t number = 0; number <= StepTimes::kWindow; ++number) {
        step(1);
    }
    EXPECT_EQ(times_.steps(), StepTimes::kWindow);
    EXPECT_LE(times_.p99(), 1 * kWidth);
}

TEST_F(StepTimesTest, WhatARankSaysOfItsStepCountsIfItIsMore) {
    for (int number = 0; number < 10; ++number) {
        step(0, 7);
        times_.note({1, 1}, step_, time_, 9, 0);       // the slower rank
        times_.note({1, 1}, step_ - 1, time_, 70, 0);  // of a step that is over
    }
    EXPECT_GE(times_.p99(), 9);
    EXPECT_LE(times_.p99(), 9 * kWidth);
}

TEST_F(StepTimesTest, ReportsThatSkipStepsHaveTheMeanOfThose) {
    for (int number = 0; number < 10; ++number) {
        step(500, kNone, 50);
    }
    EXPECT_GE(times_.p99(), 10);
    EXPECT_LE(times_.p99(), 10 * kWidth);
}

TEST_F(StepTimesTest, TheFirstOfAGenerationAndWhatAgesBeforeItCountForNothing) {
    step(0, 300);  // it compiles
    step(10);
    step(10);
    ++generation_;
    step_ = 0;
    step(1000, 300);
    step(10);
    step(10);
    EXPECT_EQ(times_.steps(), 3U) << "the newest may not be over";
    EXPECT_LE(times_.p99(), 10 * kWidth);
    times_.note({1, 1}, 90, time_ + 500, kNone, 0);  // late, of the generation before
    step(10);
    EXPECT_LE(times_.p99(), 10 * kWidth);
}

TEST_F(StepTimesTest, ASuspensionIsNoStep) {
    step(10);
    step(10);
    still_at_ = time_ + 5000;
    step(10'000, 10'000);
    step(10);
    step(10);
    EXPECT_EQ(times_.steps(), 2U);
    EXPECT_LE(times_.p99(), 10 * kWidth);
}

// Ranks that wait for the one that evaluates count the evaluation as their step.
TEST_F(StepTimesTest, AStepInWhichARankEvaluatesOrSavesIsNone) {
    for (int number = 0; number < 100; ++number) {
        step(1);
        if (number % 10 == 5) {
            times_.pause({1, 1}, step_, time_);
            step(300, 300);
        }
    }
    EXPECT_EQ(times_.steps(), 98U) << "all but the first and the newest";
    EXPECT_LE(times_.p99(), 1 * kWidth);
}

TEST_F(StepTimesTest, APauseCountsByTheStepAfterWhichItWasOrByItsTime) {
    step(10);
    step(10);
    times_.pause({1, 1}, step_, time_ - 1);  // another node's clock
    step(300);
    times_.pause({1, 1}, -1, time_ + 1);  // of a rank that reports no steps
    step(300);
    times_.pause({1, 1}, step_ - 1, time_ - 200);  // late
    times_.pause({1, 0}, step_, time_);
    step(10);
    step(10);
    EXPECT_EQ(times_.steps(), 2U);
    step(10);
    EXPECT_EQ(times_.steps(), 3U);
    EXPECT_LE(times_.p99(), 10 * kWidth);
}

TEST_F(StepTimesTest, OneThatGotStuckAndWentOnIsNotWhatStepsTakeButTwoAre) {
    for (int number = 0; number < 30; ++number) {
        step(number == 15 ? 1200 : 60);
    }
    EXPECT_LE(times_.p99(), 60 * kWidth);
    step(1200);
    step(60);
    EXPECT_GE(times_.p99(), 1200);
}

TEST_F(StepTimesTest, ReportsWithoutAStepAndNumbersThatAreNoneDoNoHarm) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    times_.note({1, 1}, -1, time_, 5, 0);
    step(10, kInfinite);
    step(10, kNone);
    step(10, -1);
    step(1e12);
    step(1e12);
    step(10);
    EXPECT_EQ(times_.steps(), 4U);
    EXPECT_GT(times_.p99(), 1e6);
}

}  // namespace
}  // namespace lockstep::telemetry
