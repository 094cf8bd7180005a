#include "daemon/telemetry/series/recent_steps.hpp"

#include "daemon/telemetry/series/rank_series.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::telemetry {
namespace {

TEST(RecentSteps, GivesTheNewestUpToTheStepExactly) {
    RecentSteps recent{1};
    for (int i = 0; i < 1000; ++i) {
        recent.add(0, i, i, kAbsent);
    }
    EXPECT_EQ(recent.loss_at(0, 999), 999);
    EXPECT_EQ(recent.loss_at(0, 5000), 999);
    EXPECT_EQ(recent.loss_at(0, 990), 990);
    EXPECT_EQ(recent.loss_at(0, 968), 968) << "the oldest of 32";
    EXPECT_EQ(recent.loss_at(0, 967), std::nullopt) << "too long ago to be exact";
    EXPECT_EQ(recent.step_seconds_at(0, 999), std::nullopt);
}

TEST(RecentSteps, ARankThatReportsLessOftenKeepsItsOwn) {
    RecentSteps recent{3};
    for (int i = 0; i < 100; ++i) {
        recent.add(0, i, i, 2 * i);
    }
    recent.add(1, 3, 30, kAbsent);
    recent.add(1, 4, kAbsent, kAbsent);  // says nothing
    recent.add(1, -1, 7, 7);             // nor does one without a step
    EXPECT_EQ(recent.loss_at(1, 99), 30);
    EXPECT_EQ(recent.loss_at(1, 2), std::nullopt);
    const std::vector<std::uint32_t> all{0, 1, 2};
    EXPECT_THAT(recent.losses_at(all, 80), testing::ElementsAre(80, 30));
    EXPECT_THAT(recent.losses_at(80), testing::ElementsAre(80, 30));
    EXPECT_THAT(recent.step_seconds_at(all, 80), testing::ElementsAre(160));
}

TEST(RecentSteps, WhatIsClearedIsGoneForThatRankOnly) {
    RecentSteps recent{2};
    recent.add(0, 5, 1, 1);
    recent.add(1, 5, 2, 2);
    recent.clear(0);
    EXPECT_EQ(recent.loss_at(0, 9), std::nullopt);
    EXPECT_EQ(recent.loss_at(1, 9), 2);
    recent.add(0, 4, 8, 8);
    EXPECT_EQ(recent.loss_at(0, 9), 8);
}

}  // namespace
}  // namespace lockstep::telemetry
