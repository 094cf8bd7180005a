// How many jobs a user may have, and how fast they may come.
#include "daemon/control/base/user_quotas.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class UserQuotasTest : public testing::Test {
  protected:
    static constexpr UserQuotas::Instant kStart{1h};

    // Submits so many; 0 or when to try again.
    std::int32_t submit(const std::string& user, std::size_t count, UserQuotas::Instant now) {
        auto hold = quotas_.take(user, count, caps_, now);
        if (!hold) {
            EXPECT_EQ(hold.error().code, Errc::exhausted);
            EXPECT_GT(hold.error().retry_after_s, 0);
            return hold.error().retry_after_s;
        }
        hold->keep();
        for (std::size_t i = 0; i < count; ++i) {
            quotas_.begun(user);
        }
        return 0;
    }

    UserQuotas quotas_;
    UserQuotas::Caps caps_{10, 0};
};

TEST_F(UserQuotasTest, AUserHasSoManyUnfinishedJobsAndNoMore) {
    EXPECT_EQ(submit("ada", 10, kStart), 0);
    EXPECT_EQ(quotas_.take("ada", 1, caps_, kStart).error().message,
              "limit: a user may have 10 unfinished jobs; ada has 10");
    EXPECT_EQ(submit("bob", 3, kStart), 0) << "each has their own";
    quotas_.ended("ada");
    EXPECT_EQ(quotas_.unfinished("ada"), 9U);
    EXPECT_GT(submit("ada", 2, kStart), 0) << "all of a sweep or nothing";
    EXPECT_EQ(submit("ada", 1, kStart), 0);
}

TEST_F(UserQuotasTest, JobsThatAreBeingStoredCountUntilTheyCameToNothing) {
    {
        const auto held = quotas_.take("ada", 10, caps_, kStart);
        ASSERT_TRUE(held.has_value());
        EXPECT_FALSE(quotas_.take("ada", 1, caps_, kStart).has_value());
    }
    EXPECT_EQ(submit("ada", 10, kStart), 0);
}

TEST_F(UserQuotasTest, AMinutesJobsMayComeAtOnceAndThenOneByOne) {
    caps_ = {0, 60};
    EXPECT_EQ(submit("ada", 60, kStart), 0);
    EXPECT_EQ(submit("ada", 1, kStart), 1);
    EXPECT_EQ(submit("bob", 1, kStart), 0);
    EXPECT_EQ(submit("ada", 1, kStart + 1s), 0);
    EXPECT_EQ(submit("ada", 5, kStart + 1s), 5) << "that many seconds";
    EXPECT_EQ(submit("ada", 60, kStart + 1h), 0) << "no more than a minute's is saved";
    EXPECT_EQ(submit("ada", 1, kStart + 1h), 1);
}

TEST_F(UserQuotasTest, ASweepOfMoreThanAMinutesIsPossibleAndMadeUpFor) {
    caps_ = {0, 60};
    EXPECT_EQ(submit("ada", 1000, kStart), 0);
    EXPECT_EQ(submit("ada", 1, kStart), 941);
    EXPECT_GT(submit("ada", 1, kStart + 940s), 0);
    EXPECT_EQ(submit("ada", 1, kStart + 941s), 0);
    EXPECT_GT(submit("ada", 1000, kStart + 950s), 0) << "only with a full bucket";
}

TEST_F(UserQuotasTest, WhatWasNotSubmittedCostsNothing) {
    caps_ = {0, 5};
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(quotas_.take("ada", 5, caps_, kStart).has_value()) << i;
    }
    EXPECT_EQ(submit("ada", 5, kStart), 0);
    EXPECT_GT(submit("ada", 1, kStart), 0);
}

TEST_F(UserQuotasTest, NothingIsNoLimit) {
    caps_ = {};
    for (int i = 0; i < 1000; ++i) {
        ASSERT_EQ(submit("ada", 1000, kStart), 0);
    }
}

}  // namespace
}  // namespace lockstep
