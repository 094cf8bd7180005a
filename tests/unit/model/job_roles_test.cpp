// Jobs whose ranks have roles, of which not every one ends the job.
#include "job/model/invariants.hpp"
#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Ranks 0 and 1 are servers.
constexpr const char* kWithServers = R"({"name":"t","framework":"command","command":["x"],
    "resources":{"nodes":2,"ranks_per_node":2},
    "roles":[{"name":"ps","count":2},{"name":"worker","count":2}]})";

TEST(JobRoles, OnceTheRanksThatEndTheJobHaveEndedTheOthersAreStoppedAndItIsASuccess) {
    History h{kWithServers};
    h.running();
    h.must(h.exit(2, 0));
    EXPECT_FALSE(work_done(h.job));
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::watch);
    h.must(h.exit(3, 0));
    EXPECT_TRUE(work_done(h.job));
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::stop);
    EXPECT_EQ(due(h.job, h.now).cause.kind, CauseClass::none);
    for (const std::int32_t server : {0, 1}) {
        event::RankExited exit = h.exit(server, -1);
        exit.signal = 15;
        exit.stopped = true;
        h.must(exit);
    }
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
    EXPECT_FALSE(broken_by(h.job, outcome(h.job)));
    EXPECT_EQ(rank_json(h.job, 0)["role"], "ps");
    EXPECT_EQ(rank_json(h.job, 0)["state"], "stopped");
    EXPECT_EQ(rank_json(h.job, 3)["role"], "worker");
}

TEST(JobRoles, AServerThatIsLostWhileSomebodyWorksIsAFailure) {
    History h{kWithServers};
    h.running();
    h.must(h.exit(2, 0));
    h.must(h.exit(1, 7));
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::stop);
    event::RankExited stopped = h.exit(3, 0);
    stopped.stopped = true;
    h.must(stopped);
    h.must(h.exit(0, 0));
    EXPECT_EQ(outcome(h.job).state, JobState::failed);
    EXPECT_EQ(outcome(h.job).cause.rank, 1);
}

TEST(JobRoles, AServerThatLeavesByItselfEndsNothing) {
    History h{kWithServers};
    h.running();
    h.must(h.exit(0, 0));
    h.must(h.exit(1, 0));
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::watch);
}

TEST(JobRoles, WhatBecomesOfAServerAfterTheWorkIsNoFailure) {
    History h{kWithServers};
    h.running();
    h.must(h.exit(2, 0));
    h.must(h.exit(3, 0));
    h.must(h.exit(0, 1));  // its clients are gone, and it says so
    h.must(h.exit(1, 1));
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
}

}  // namespace
}  // namespace lockstep
