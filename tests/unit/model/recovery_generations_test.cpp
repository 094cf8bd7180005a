// One generation after another, and the people who ask for a restart or a cancel in between.
#include "job/model/invariants.hpp"
#include "job/model/recovery.hpp"
#include "tests/unit/model/recovery_fixture.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Recovery, ARankThatExitsStartsTheNextGeneration) {
    History h = running(kOn);
    h.must(h.exit(3, 1));
    EXPECT_EQ(due_of(h), ActionKind::restart);
    EXPECT_EQ(due(h.job, h.now).cause.rank, 3);
    h.must(h.end_of_generation(CauseClass::rank_exit, 40));
    EXPECT_EQ(h.job.state, JobState::restarting);
    EXPECT_EQ(h.job.generation()->step, 40);
    EXPECT_EQ(h.job.live_generation(), nullptr);
    EXPECT_EQ(due_of(h), ActionKind::gather);
    h.generation();
    EXPECT_EQ(h.job.state, JobState::starting);
    EXPECT_EQ(h.job.generation()->number, 2);
    h.ranks_started();
    EXPECT_EQ(h.job.state, JobState::running);
    for (int rank = 0; rank < 4; ++rank) {
        h.must(h.exit(rank, 0));
    }
    EXPECT_EQ(due_of(h), ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::succeeded);
}

// Every rank has ended, one of them badly: still a restart, not the end.
TEST(Recovery, RanksThatHaveAllEndedAreStartedAgain) {
    History on = running(kOn);
    History off = running(kOff);
    for (int rank = 0; rank < 4; ++rank) {
        on.must(on.exit(rank, rank == 2 ? 1 : 0));
        off.must(off.exit(rank, rank == 2 ? 1 : 0));
    }
    EXPECT_EQ(due_of(on), ActionKind::restart);
    EXPECT_EQ(due_of(off), ActionKind::conclude);
}

TEST(Recovery, ACancelWins) {
    History failed = running(kOn);
    failed.must(failed.exit(0, 1));
    failed.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(failed), ActionKind::stop);
    History between = running(kOn);
    between.fails(CauseClass::rank_exit, 5);
    between.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(between), ActionKind::stop);
    EXPECT_EQ(outcome(between.job).state, JobState::cancelled);
    History preempted = running(kOn);
    preempted.must(preempted.attempt_fault(CauseClass::preempted));
    preempted.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(preempted), ActionKind::stop);
    History restart = running(kOn);
    restart.must(event::RestartRequested{1, 1, "bob"});
    restart.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(restart), ActionKind::stop);
    EXPECT_EQ(outcome(restart.job).state, JobState::cancelled);
}

TEST(Recovery, ACancelBetweenAttemptsEndsTheJob) {
    History h = running(kOn);
    h.must(h.attempt_fault(CauseClass::preempted));
    h.must(h.end_of_generation(CauseClass::preempted));
    h.attempt_ends(CauseClass::preempted);
    EXPECT_EQ(due_of(h), ActionKind::create_attempt);
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(due_of(h), ActionKind::conclude);
    EXPECT_EQ(outcome(h.job).state, JobState::cancelled);
    EXPECT_FALSE(broken_by(h.job, outcome(h.job)));
}

// The attempt may end before anybody says that its generation has: what failed in it is no reason
// any more once another attempt is to come.
TEST(Recovery, AGenerationEndsWithItsAttempt) {
    History h = running(kOn);
    h.must(h.fault(CauseClass::node_lost, 0));
    EXPECT_EQ(due_of(h), ActionKind::next_attempt);
    h.attempt_ends(CauseClass::node_lost);
    EXPECT_FALSE(h.job.generation()->open());
    EXPECT_EQ(h.job.generation()->cause.kind, CauseClass::node_lost);
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(outcome(h.job).state, JobState::cancelled);
}

TEST(Recovery, APersonsRestartIsNotCounted) {
    History h = running(R"(,"recovery":{"max_restarts":1})");
    for (int i = 1; i <= 5; ++i) {
        h.must(event::RestartRequested{1, i, "ada"});
        EXPECT_FALSE(h.add(event::RestartRequested{1, i, "bob"}).has_value()) << "asked already";
        EXPECT_EQ(due_of(h), ActionKind::restart);
        EXPECT_EQ(due(h.job, h.now).cause.message, "restart asked for by ada");
        h.must(h.end_of_generation(CauseClass::restart_requested, 5));
        EXPECT_EQ(h.job.restart_requested_by, "");
        EXPECT_EQ(due_of(h), ActionKind::gather);
        h.again();
    }
    EXPECT_EQ(restarts_used(h.job), 0);
    EXPECT_FALSE(h.add(event::RestartRequested{1, 5, "ada"}).has_value()) << "of an old one";
}

TEST(Recovery, APersonsRestartNeedsNoRecoveryInTheSpec) {
    History h = running(kOff);
    h.must(event::RestartRequested{1, 1, "ada"});
    EXPECT_EQ(due_of(h), ActionKind::restart);
    h.must(h.exit(0, 1));
    EXPECT_EQ(due_of(h), ActionKind::stop) << "it failed by itself first";
}

// The other node's ranks lose their peers before their own agent hears that it is to end them.
TEST(Recovery, RanksThatLoseStoppedPeersMakeNoFailureOfARestartOrACancel) {
    for (const char* kind : {"echo", "network"}) {
        SCOPED_TRACE(kind);
        History h = running(kOff);
        event::RankExited lost_peer = h.exit(2, 1);
        lost_peer.failure = kind;
        const auto left_alone = [&](EventData wish) {
            History out = running(kOff);
            out.must(std::move(wish));
            out.must(lost_peer);
            EXPECT_TRUE(out.job.generation()->stopped.contains(2));
            EXPECT_FALSE(out.job.generation()->first_failure);
            return out;
        };
        EXPECT_EQ(due_of(left_alone(event::RestartRequested{1, 1, "ada"})), ActionKind::restart);
        EXPECT_EQ(due_of(left_alone(event::RestartRequested{1, 1, "lockstep", "n2 is there"})),
                  ActionKind::restart)
            << "a larger generation";
        const History cancelled = left_alone(event::CancelRequested{"ada"});
        EXPECT_EQ(due_of(cancelled), ActionKind::stop);
        EXPECT_EQ(outcome(cancelled.job).state, JobState::cancelled);
        h.must(lost_peer);
        EXPECT_TRUE(h.job.generation()->first_failure.has_value()) << "nobody had asked for it";
    }
}

TEST(Recovery, AnEndedGenerationIsHistory) {
    History h = running(kOn);
    h.fails(CauseClass::rank_exit, 5);
    h.must(h.fault(CauseClass::hang));
    EXPECT_EQ(due_of(h), ActionKind::gather);
    EXPECT_EQ(h.job.generation()->cause.kind, CauseClass::rank_exit);
    EXPECT_FALSE(h.add(h.exit(0, 1)).has_value());
    EXPECT_FALSE(h.add(event::CheckpointSaved{1, 1, 9, "p"}).has_value());
    EXPECT_FALSE(h.add(h.end_of_generation(CauseClass::hang)).has_value());
    event::FaultSeen late = h.fault(CauseClass::hang);
    h.again();
    h.must(late);
    EXPECT_EQ(due_of(h), ActionKind::watch) << "it was the one before";
    EXPECT_FALSE(h.job.attempt()->fault.has_value());
    EXPECT_EQ(h.job.checkpoint_step, -1);
}

TEST(Recovery, AGenerationThatNeverMeetsAgainEndsTheJob) {
    History h = running(kOn);
    h.fails(CauseClass::rank_exit, 5);
    const Action action = due(h.job, h.now + 300'000);
    ASSERT_TRUE(action.fault.has_value());
    EXPECT_EQ(action.fault->message, "the nodes did not meet again within 300 s");
    h.must(*action.fault);
    EXPECT_EQ(due_of(h), ActionKind::stop);
    EXPECT_EQ(outcome(h.job).cause.kind, CauseClass::rendezvous_timeout);
}

}  // namespace
}  // namespace lockstep
