#include "job/agent/ranks/step_timer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {
namespace {

// What the timer makes of a report.
std::optional<double> timed(StepTimer& timer, std::int64_t step, double at,
                            const std::string& metric = "loss", double value = 0.5) {
    RankReport report;
    report.step = step;
    report.time = at;
    report.has_loss = true;
    report.metrics.emplace_back(metric, value);
    timer.time(report);
    for (const auto& [name, seconds] : report.metrics) {
        if (name == "step_seconds") {
            return seconds;
        }
    }
    return std::nullopt;
}

TEST(StepTimer, AStepIsTheTimeBetweenTwoLosses) {
    StepTimer timer;
    EXPECT_EQ(timed(timer, 1, 100.0), std::nullopt);
    EXPECT_EQ(timed(timer, 2, 100.5), 0.5);
    EXPECT_EQ(timed(timer, 12, 105.5), 0.5) << "every tenth step is reported";
    EXPECT_EQ(timed(timer, 12, 106.0), std::nullopt) << "the same step once more";
    EXPECT_EQ(timed(timer, 3, 107.0), std::nullopt) << "back, as after a restart within a script";
    EXPECT_EQ(timed(timer, 4, 109.0), 2.0);
}

TEST(StepTimer, ReportsThatComeAtOnceTellNothingOfTheTime) {
    StepTimer timer;
    for (std::int64_t step = 1; step < 50; ++step) {
        EXPECT_EQ(timed(timer, step, 100.0 + 1e-6 * static_cast<double>(step)), std::nullopt);
    }
    EXPECT_EQ(timed(timer, 50, 99.0), std::nullopt) << "a clock that was set back";
}

TEST(StepTimer, StepsThatAreReportedInBurstsHaveTheirMean) {
    StepTimer timer;
    for (std::int64_t step = 1; step <= 50; ++step) {
        timed(timer, step, 100.0 + 1e-5 * static_cast<double>(step - 1));
    }
    EXPECT_EQ(timed(timer, 51, 125.0), 0.5) << "and not 25 seconds";
}

TEST(StepTimer, AMicroBatchIsNoStep) {
    StepTimer timer;
    EXPECT_EQ(timed(timer, 1, 100.0), std::nullopt);
    EXPECT_EQ(timed(timer, 2, 100.25, "micro_loss"), std::nullopt);
    EXPECT_EQ(timed(timer, 2, 101.0), 1.0);
}

TEST(StepTimer, WhatItDoesInBetweenIsNoStep) {
    StepTimer timer;
    timed(timer, 1, 100.0);
    timer.pause();
    EXPECT_EQ(timed(timer, 2, 160.0), std::nullopt);
    EXPECT_EQ(timed(timer, 3, 161.0), 1.0);
}

TEST(StepTimer, ARankThatTimesItsStepsIsLeftAlone) {
    StepTimer timer;
    timed(timer, 1, 100.0);
    EXPECT_EQ(timed(timer, 2, 101.0, "step_seconds", 0.25), 0.25);
    EXPECT_EQ(timed(timer, 3, 102.0), std::nullopt);
}

TEST(StepTimer, ReportsOfNoStepAreLeftAlone) {
    StepTimer timer;
    timed(timer, 1, 100.0);
    RankReport other;
    other.step = 2;
    other.time = 100.2;
    other.metrics.emplace_back("accuracy", 0.9);
    timer.time(other);
    EXPECT_EQ(other.metrics.size(), 1U);
    EXPECT_EQ(timed(timer, 2, 101.0), 1.0);
}

}  // namespace
}  // namespace lockstep
