// A job from its submission to its outcome, and what ends it on the way.
#include "job/base/limits.hpp"
#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(JobLife, GoesFromAcceptedToSucceeded) {
    History h;
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::create_attempt);
    h.attempt();
    EXPECT_EQ(h.job.state, JobState::queued);
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::place);
    h.placed();
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::gather);
    h.claims();
    h.generation();
    h.must(event::RanksStarted{1, 1});
    EXPECT_EQ(h.job.state, JobState::running);
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::watch);
    for (int rank = 0; rank < 4; ++rank) {
        h.must(h.exit(rank, 0));
    }
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::conclude);
    const event::Finished end = outcome(h.job);
    EXPECT_EQ(end.state, JobState::succeeded);
    EXPECT_EQ(end.cause.kind, CauseClass::none);
    h.must(event::GenerationEnded{1, 1, {}});
    h.must(event::AttemptEnded{1, {}});
    h.must(end);
    EXPECT_EQ(h.job.state, JobState::succeeded);
    EXPECT_GT(h.job.finished_at, h.job.started_at);
}

TEST(JobLife, TheFirstExitIsTheCauseWhateverWasHeardFirst) {
    History h;
    h.running();
    h.must(h.exit(3, 1, 5000));  // heard first, happened later: an echo
    h.must(h.exit(1, 7, 4000));
    const Action action = due(h.job, h.now);
    EXPECT_EQ(action.kind, ActionKind::stop);
    EXPECT_EQ(action.cause.rank, 1);
    EXPECT_EQ(action.cause.exit_code, 7);
    EXPECT_EQ(action.cause.node, "n0");
    EXPECT_EQ(action.cause.message, "rank 1 on n0 exited with code 7");
}

TEST(JobLife, RanksThatWereStoppedAreNotTheCause) {
    History h;
    h.running();
    event::RankExited stopped = h.exit(0, -1, 1000);
    stopped.signal = 15;
    stopped.stopped = true;
    h.must(stopped);
    h.must(h.exit(2, 3, 2000));
    EXPECT_EQ(due(h.job, h.now).cause.rank, 2);
}

TEST(JobLife, ASignalIsNamedAndOutOfMemoryIsItsOwnClass) {
    History h;
    h.running();
    event::RankExited killed = h.exit(0, -1, 1000);
    killed.signal = 11;
    h.must(killed);
    EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::rank_signal);
    EXPECT_EQ(outcome(h.job).cause.message, "rank 0 on n0 was ended by SIGSEGV");
    event::RankExited oom = h.exit(1, -1, 500);
    oom.signal = 9;
    oom.oom = true;
    h.must(oom);
    EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::oom);
}

TEST(JobLife, AnExitIsCountedOnce) {
    History h;
    h.running();
    h.must(h.exit(0, 0));
    EXPECT_EQ(h.add(h.exit(0, 0)).error().code, Errc::conflict);
    EXPECT_EQ(h.add(h.exit(4, 0)).error().code, Errc::conflict);
    EXPECT_EQ(h.job.generation()->exited_count, 1);
}

TEST(JobLife, ASecondClaimOfANodeIsRefused) {
    History h;
    h.attempt();
    h.placed();
    h.claims();
    EXPECT_FALSE(h.add(event::AgentClaimed{1, 0, "other", "other", 2}).has_value());
    EXPECT_FALSE(h.add(event::AgentClaimed{1, 2, "n2", "i2", 2}).has_value());
}

TEST(JobLife, TheFirstClaimFixesTheAllocationForAllNodes) {
    History h;
    h.attempt();
    h.must(event::AttemptSubmitting{1, 1});
    h.must(event::AttemptSubmitted{1, "17"});
    h.placed();
    h.must(event::AgentClaimed{1, 0, "n0", "i0", 1, "18"});
    EXPECT_EQ(h.job.attempt()->allocation, "18");
    EXPECT_FALSE(h.add(event::AgentClaimed{1, 1, "n1", "i1", 1, "17"}).has_value());
    EXPECT_FALSE(h.add(event::AgentClaimed{1, 1, "n1", "i1", 1, ""}).has_value());
    h.must(event::AgentClaimed{1, 1, "n1", "i1", 1, "18"});
}

TEST(JobLife, AnAttemptIsSubmittedAgainOnlyWhileNobodyHasClaimedIt) {
    History h;
    h.attempt();
    EXPECT_FALSE(h.add(event::AttemptSubmitting{1, 2}).has_value());
    h.must(event::AttemptSubmitting{1, 1});
    h.must(event::AttemptSubmitted{1, "17"});
    h.must(event::AttemptSubmitting{1, 2});
    EXPECT_EQ(h.job.attempt()->scheduler_id, "") << "17 is gone";
    EXPECT_EQ(h.job.attempt()->submissions, 2);
    EXPECT_EQ(h.job.attempt()->submitting_at, h.now);
}

TEST(JobLife, AnAllocationThatIsForgottenBeforeAnybodyCalledInGoesBackIntoTheQueue) {
    History h;
    h.attempt();
    h.must(event::AttemptSubmitting{1, 1});
    h.placed();
    EXPECT_EQ(h.job.state, JobState::starting);
    h.must(event::AttemptSubmitting{1, 2});
    EXPECT_EQ(h.job.state, JobState::queued);
    EXPECT_EQ(h.job.attempt()->placed_at, 0);
    h.placed();
    h.claims();
    EXPECT_FALSE(h.add(event::AttemptSubmitting{1, 3}).has_value()) << "it is somebody's now";
}

TEST(JobLife, AHeldJobWaitsAndGoesOn) {
    History h;
    h.attempt();
    h.must(event::Held{1, "held by an administrator"});
    EXPECT_EQ(h.job.state, JobState::held);
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::place) << "the scheduler is still asked";
    h.must(event::AttemptSubmitted{1, "17"});
    EXPECT_EQ(h.job.state, JobState::held);
    h.must(event::Released{1});
    EXPECT_EQ(h.job.state, JobState::queued);
    h.must(event::Held{1, "again"});
    h.placed();
    EXPECT_EQ(h.job.state, JobState::starting);
    EXPECT_EQ(h.job.attempt()->held_reason, "");
}

TEST(JobLife, AHeldJobThatTheSchedulerHasForgottenIsSubmittedAgain) {
    History h;
    h.attempt();
    h.must(event::AttemptSubmitting{1, 1});
    h.must(event::AttemptSubmitted{1, "17"});
    h.must(event::Held{1, "held by an administrator"});
    h.must(event::AttemptSubmitting{1, 2});
    EXPECT_EQ(h.job.state, JobState::queued);
    EXPECT_EQ(h.job.attempt()->held_reason, "") << "it was said of 17";
    EXPECT_EQ(h.job.attempt()->submissions, 2);
}

TEST(JobLife, GenerationsAreFencedByNumber) {
    History h;
    h.running();
    EXPECT_FALSE(h.add(event::RanksStarted{1, 2}).has_value());
    EXPECT_FALSE(h.add(event::CheckpointSaved{1, 2, 5, ""}).has_value());
    EXPECT_FALSE(h.add(event::CheckpointSaved{2, 1, 5, ""}).has_value());
}

TEST(JobLife, CancelledBeforeAnythingRanEndsAtOnce) {
    History h;
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::cancelled);
    EXPECT_EQ(outcome(h.job).cause.message, "cancelled by ada");
}

TEST(JobLife, CancelledWhileRunningStopsTheRanksFirst) {
    History h;
    h.running();
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(h.job.state, JobState::running);
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::stop);
    for (int rank = 0; rank < 4; ++rank) {
        event::RankExited stopped = h.exit(rank, -1);
        stopped.signal = 15;
        stopped.stopped = true;
        h.must(stopped);
    }
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::cancelled);
}

TEST(JobLife, ACancelThatComesAfterTheLastCleanExitChangesNothing) {
    History h;
    h.running();
    for (int rank = 0; rank < 4; ++rank) {
        h.must(h.exit(rank, 0));
    }
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
}

// A script that catches SIGTERM, saves and exits with 0 has not finished its work.
TEST(JobLife, RanksThatWereStoppedAndExitedCleanlyDoNotMakeASuccess) {
    History h;
    h.running();
    h.must(event::CancelRequested{"ada"});
    for (int rank = 0; rank < 4; ++rank) {
        event::RankExited stopped = h.exit(rank, 0);
        stopped.stopped = true;
        h.must(stopped);
    }
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::cancelled);
    EXPECT_EQ(rank_json(h.job, 0)["state"], "stopped");
}

TEST(JobLife, RanksStoppedByNobodyWeKnowAreAFailure) {
    History h;
    h.running();
    for (int rank = 0; rank < 4; ++rank) {
        event::RankExited stopped = h.exit(rank, 0);
        stopped.stopped = true;
        h.must(stopped);
    }
    EXPECT_EQ(outcome(h.job).state, JobState::failed);
    EXPECT_EQ(outcome(h.job).cause.message, "the ranks were stopped from outside Lockstep");
}

TEST(JobLife, AGenerationThatNeverGetsGoingEndsTheJob) {
    History h;
    h.attempt();
    h.placed();
    h.claims();
    h.generation();
    const UnixMillis patience = std::chrono::milliseconds{limits::kGatherTimeout}.count();
    const UnixMillis formed = h.job.generation()->started_at;
    EXPECT_FALSE(due(h.job, formed + patience - 1).fault.has_value());
    const Action action = due(h.job, formed + patience);
    ASSERT_TRUE(action.fault.has_value());
    EXPECT_EQ(action.fault->message, "the ranks of generation 1 were not all started within 300 s");
}

TEST(JobLife, AFailureBeforeTheCancelStaysTheCause) {
    History h;
    h.running();
    h.must(h.exit(0, 9, 100));
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(outcome(h.job).state, JobState::failed);
    EXPECT_EQ(outcome(h.job).cause.exit_code, 9);
}

TEST(JobLife, TheTimeLimitBecomesTheCause) {
    History h{R"({"name":"t","framework":"command","command":["x"],
                  "resources":{"nodes":2,"ranks_per_node":2,"time_limit":"10"}})"};
    h.running();
    const UnixMillis placed = h.job.attempt()->placed_at;
    EXPECT_EQ(due(h.job, placed + 599'999).kind, ActionKind::watch);
    const Action action = due(h.job, placed + 600'000);
    ASSERT_TRUE(action.fault.has_value());
    h.must(*action.fault);
    EXPECT_EQ(due(h.job, placed + 600'000).kind, ActionKind::stop);
    EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::time_limit);
}

// Two jobs of a campaign were ended by this clock in an allocation whose launch had never reached
// the node, seconds before Slurm said so, which hands such a job in again.
TEST(JobLife, TheTimeLimitOfAnAttemptThatNobodyHasClaimedIsTheSchedulersToKeep) {
    History h{R"({"name":"t","framework":"command","command":["x"],
                  "resources":{"nodes":2,"ranks_per_node":2,"time_limit":"4"}})"};
    h.attempt();
    h.placed();
    const UnixMillis placed = h.job.attempt()->placed_at;
    EXPECT_FALSE(due(h.job, placed + 240'000).fault.has_value());
    h.must(event::AgentClaimed{1, 0, "n0", "i0", 1});
    const Action action = due(h.job, placed + 240'000);
    ASSERT_TRUE(action.fault.has_value());
    EXPECT_EQ(action.fault->cause_class, CauseClass::time_limit);
}

// Down for as long as nodes may take to call in, lockstepd had heard of none, and gave them no
// time.
TEST(JobLife, NodesThatCouldNotCallInWhileNoLockstepdWasThereHaveTheirTimeAfterIt) {
    History h;
    h.attempt();
    h.placed();
    const UnixMillis patience = std::chrono::milliseconds{limits::kGatherTimeout}.count();
    const UnixMillis again = h.job.attempt()->placed_at + 2 * patience;
    EXPECT_EQ(due(h.job, again, again).kind, ActionKind::gather);
    EXPECT_EQ(due(h.job, again + patience - 1, again).kind, ActionKind::gather);
    const Action action = due(h.job, again + patience, again);
    ASSERT_TRUE(action.fault.has_value());
    EXPECT_EQ(action.fault->cause_class, CauseClass::rendezvous_timeout);
    EXPECT_TRUE(due(h.job, again).fault.has_value());
}

TEST(JobLife, NodesThatNeverCallInAreNamed) {
    History h;
    h.attempt();
    h.placed();
    h.must(event::AgentClaimed{1, 0, "n0", "i0", 1});
    const UnixMillis patience = std::chrono::milliseconds{limits::kGatherTimeout}.count();
    EXPECT_FALSE(due(h.job, h.job.attempt()->placed_at + patience - 1).fault.has_value());
    const Action action = due(h.job, h.job.attempt()->placed_at + patience);
    ASSERT_TRUE(action.fault.has_value());
    EXPECT_EQ(action.fault->message, "1 of 2 nodes called in within 300 s; missing: node 1");
    EXPECT_EQ(action.fault->cause_class, CauseClass::rendezvous_timeout);
}

TEST(JobLife, AFaultBeforeAnyGenerationEndsTheAttempt) {
    History h;
    h.attempt();
    event::FaultSeen fault;
    fault.attempt = 1;
    fault.cause_class = CauseClass::scheduler;
    fault.message = "no such partition";
    h.must(fault);
    EXPECT_EQ(due(h.job, h.now).kind, ActionKind::stop);
    EXPECT_EQ(outcome(h.job).cause.message, "no such partition");
}

}  // namespace
}  // namespace lockstep
