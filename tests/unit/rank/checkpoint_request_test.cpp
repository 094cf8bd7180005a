#include "job/rank/checkpoint_request.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

namespace lockstep {
namespace {

int seen_before = 0;

TEST(CheckpointRequest, IsTrueOnceForEachRequestAndTheOldHandlerIsCalled) {
    ::setenv("LOCKSTEP_CHECKPOINT_SIGNAL", "USR1", 1);
    ::signal(SIGUSR1, [](int) { ++seen_before; });
    EXPECT_FALSE(checkpoint_requested());
    ::raise(SIGUSR1);
    ::raise(SIGUSR1);
    EXPECT_TRUE(checkpoint_requested());
    EXPECT_FALSE(checkpoint_requested());
    ::raise(SIGUSR1);
    EXPECT_TRUE(checkpoint_requested());
    EXPECT_EQ(seen_before, 3);
    ::unsetenv("LOCKSTEP_CHECKPOINT_SIGNAL");
}

}  // namespace
}  // namespace lockstep
