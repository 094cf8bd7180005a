// How many jobs go to the scheduler, and whose.
#include "daemon/control/jobs/hand_over_window.hpp"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

class HandOverWindowTest : public testing::Test {
  protected:
    // Hands over as many of the user's as may go, at most `most`; how many that were.
    std::size_t fill(const std::string& user, std::size_t most = 10'000) {
        std::size_t count = 0;
        while (count < most && window_.takes(user)) {
            window_.enter(user + std::to_string(next_++), user);
            ++count;
        }
        return count;
    }

    HandOverWindow window_;
    std::size_t next_ = 0;
};

TEST_F(HandOverWindowTest, OneUserMayHaveAllOfIt) {
    window_.set_size(64);
    EXPECT_EQ(fill("ada"), 64U);
    EXPECT_EQ(window_.taken(), 64U);
    window_.leave("ada0");
    EXPECT_EQ(fill("ada"), 1U);
}

TEST_F(HandOverWindowTest, WhatOneHasThereKeepsNobodyOut) {
    window_.set_size(1000);
    EXPECT_EQ(fill("bob"), 1000U);
    EXPECT_EQ(fill("ada"), 62U);
    EXPECT_FALSE(window_.takes("bob"));
    EXPECT_EQ(fill("cyd"), 62U);
}

TEST_F(HandOverWindowTest, ManyUsersDoubleItAndThenHaveOneEach) {
    window_.set_size(64);
    fill("first");
    for (int user = 0; user < 16; ++user) {
        EXPECT_EQ(fill("u" + std::to_string(user)), 4U) << user;
    }
    EXPECT_EQ(window_.taken(), 128U);
    EXPECT_EQ(fill("late"), 1U);
    EXPECT_EQ(fill("later"), 1U);
}

TEST_F(HandOverWindowTest, WhatIsAsideTakesNoPlaceUpToAWindowOfIt) {
    window_.set_size(4);
    EXPECT_EQ(fill("ada"), 4U);
    for (int i = 0; i < 4; ++i) {
        window_.set_aside("ada" + std::to_string(i), true);
    }
    EXPECT_EQ(window_.taken(), 0U);
    EXPECT_EQ(fill("ada"), 4U);
    for (int i = 4; i < 8; ++i) {
        window_.set_aside("ada" + std::to_string(i), true);
    }
    EXPECT_EQ(window_.taken(), 4U) << "the scheduler holds them all the same";
    EXPECT_FALSE(window_.takes("ada"));
    EXPECT_TRUE(window_.takes("bob"));
    window_.set_aside("ada0", false);
    EXPECT_EQ(window_.taken(), 4U);
    for (int i = 0; i < 8; ++i) {
        window_.leave("ada" + std::to_string(i));
        window_.leave("ada" + std::to_string(i));
    }
    EXPECT_EQ(window_.taken(), 0U);
}

TEST_F(HandOverWindowTest, ItsSizeMayChange) {
    window_.set_size(2);
    EXPECT_EQ(fill("ada"), 2U);
    window_.set_size(3);
    EXPECT_EQ(fill("ada"), 1U);
    window_.set_size(1);
    EXPECT_EQ(window_.taken(), 3U);
    EXPECT_FALSE(window_.takes("ada"));
    EXPECT_TRUE(window_.takes("bob"));
    window_.set_aside("nobody", true);
    EXPECT_EQ(window_.taken(), 3U);
}

}  // namespace
}  // namespace lockstep
