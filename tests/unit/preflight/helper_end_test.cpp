// How a helper program ended, in words.
#include "job/agent/preflight/helper_end.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr HelperLimits kLimits{std::chrono::seconds{20}, 10};

TEST(HelperEnd, AnExitStatusOrASignalAndTheLastItHasSaid) {
    ProcessResult result;
    result.exit_status = 3;
    EXPECT_EQ(helper_end(result, "", kLimits), "exit code 3");
    result.err = "first of all\nno\x1b GPU here\n";
    EXPECT_EQ(helper_end(result, "setup", kLimits).substr(0, 24), "exit code 3, in: setup: ");
    EXPECT_EQ(helper_end(result, "", kLimits).size(), std::string{"exit code 3: "}.size() + 10);
    EXPECT_TRUE(helper_end(result, "", kLimits).ends_with(" GPU here"));
    result.exit_status.reset();
    result.signal = 9;
    result.err = " \n";
    EXPECT_EQ(helper_end(result, "", kLimits), "signal 9");
}

// It was killed for it: that it died of a signal says nothing.
TEST(HelperEnd, WhatItWasKilledForGoesBeforeTheSignal) {
    ProcessResult result;
    result.signal = 9;
    result.overflowed = true;
    EXPECT_EQ(helper_end(result, "", kLimits), "it says too much");
    result.timed_out = true;
    EXPECT_EQ(helper_end(result, "", kLimits), "not over within 20 s");
    EXPECT_EQ(helper_end(result, "setup", kLimits), "not over within 20 s, in: setup");
    result.abandoned = true;
    EXPECT_EQ(helper_end(result, "setup", kLimits),
              "not over within 20 s, in: setup, and its kill did not end it: the driver hangs");
}

TEST(HelperEnd, WhatIsNotInstalledIsNoFaultOfTheNode) {
    EXPECT_EQ(helper_unstarted({Errc::not_found, "no such file"}, kLimits), "");
    EXPECT_EQ(helper_unstarted({Errc::denied, "it must not\nbe started"}, kLimits).size(), 10U);
}

}  // namespace
}  // namespace lockstep
