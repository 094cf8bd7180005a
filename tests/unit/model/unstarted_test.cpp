// Allocations that the scheduler took away before a rank had been started: asked for again,
// whatever the spec says of recovery, and never when a rank may have run.
#include "job/model/recovery.hpp"
#include "tests/unit/model/history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string unstarted_spec(const std::string& more = "") {
    return R"({"name":"t","framework":"command","command":["x"],
               "resources":{"nodes":2,"ranks_per_node":2})" +
           more + "}";
}

// An attempt in allocation 17 whose nodes have called in.
void claimed(History& h) {
    h.allocation = "17";
    h.attempt();
    h.placed();
    h.claims();
}

ActionKind action_due(const History& h) {
    return due(h.job, h.now).kind;
}

TEST(Unstarted, NodesThatAreTakenAwayBeforeTheRanksMeetAreAskedForAgain) {
    for (const CauseClass kind :
         {CauseClass::node_lost, CauseClass::scheduler, CauseClass::preempted}) {
        History gathering{unstarted_spec()};
        claimed(gathering);
        gathering.must(gathering.attempt_fault(kind));
        EXPECT_EQ(action_due(gathering), ActionKind::next_attempt) << to_string(kind);
        History fixed{unstarted_spec()};
        claimed(fixed);
        fixed.generation();
        fixed.must(fixed.fault(kind));
        EXPECT_EQ(action_due(fixed), ActionKind::next_attempt) << to_string(kind);
        fixed.attempt_ends(kind);
        EXPECT_EQ(action_due(fixed), ActionKind::create_attempt) << to_string(kind);
    }
}

TEST(Unstarted, OnceStartMayHaveLeftTheJobEnds) {
    for (const bool all_started : {false, true}) {
        History h{unstarted_spec()};
        claimed(h);
        h.generation();
        h.released();
        if (all_started) {
            h.ranks_started();
        }
        h.must(h.fault(CauseClass::node_lost));
        EXPECT_EQ(action_due(h), ActionKind::stop);
        EXPECT_FALSE(unstarted(*h.job.attempt()));
    }
}

// Of a version that did not write ranks_released.
TEST(Unstarted, RanksThatRunHaveBeenReleased) {
    History h{unstarted_spec()};
    claimed(h);
    h.generation();
    h.ranks_started();
    EXPECT_NE(h.job.generation()->released_at, 0);
}

// Such a version sent START and wrote nothing before all ranks had started. If it is replaced in
// between, and the nodes are lost, ranks may have run.
TEST(Unstarted, AGenerationOfAVersionThatDidNotTellItsReleaseMayHaveRun) {
    History h{unstarted_spec()};
    claimed(h);
    event::GenerationStarted old = h.next_generation();
    old.release_told = false;
    h.must(old);
    EXPECT_FALSE(unstarted(*h.job.attempt()));
    h.must(h.fault(CauseClass::node_lost));
    EXPECT_EQ(action_due(h), ActionKind::stop);
}

TEST(Unstarted, AReleaseThatWasToldWithoutSayingSoBeforeIsRead) {
    History h{unstarted_spec()};
    claimed(h);
    event::GenerationStarted between = h.next_generation();
    between.release_told = false;
    h.must(between);
    h.released();
    EXPECT_FALSE(h.add(event::RanksReleased{1, 1}).has_value()) << "once";
}

TEST(Unstarted, WhatAPersonOrTheJobItselfHasToMendIsNoAccident) {
    for (const CauseClass kind :
         {CauseClass::user_error, CauseClass::cancelled_by_user, CauseClass::time_limit,
          CauseClass::rendezvous_timeout, CauseClass::internal}) {
        History h{unstarted_spec()};
        claimed(h);
        h.must(h.attempt_fault(kind));
        EXPECT_EQ(action_due(h), ActionKind::stop) << to_string(kind);
    }
    History manual{unstarted_spec(R"(,"submission":"manual")")};
    claimed(manual);
    manual.must(manual.attempt_fault(CauseClass::node_lost));
    EXPECT_EQ(action_due(manual), ActionKind::stop) << "the person's to hand in again";
    History local{unstarted_spec()};
    local.attempt();
    local.placed();
    local.claims();
    local.must(local.attempt_fault(CauseClass::node_lost));
    EXPECT_EQ(action_due(local), ActionKind::stop) << "no scheduler has given it nodes";
    History cancelled{unstarted_spec()};
    claimed(cancelled);
    cancelled.must(event::CancelRequested{"ada"});
    cancelled.must(cancelled.attempt_fault(CauseClass::node_lost));
    EXPECT_EQ(action_due(cancelled), ActionKind::stop);
}

// Seen on a real Slurm: a node that its peers did not reach was asked for four times over.
TEST(Unstarted, ANodeThatFailedThePreflightWasNotTakenAway) {
    History h{unstarted_spec()};
    claimed(h);
    h.must(event::PreflightSeen{1, 1, "n1", "fail", "reachable", "nobody", "somebody"});
    h.must(h.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(action_due(h), ActionKind::stop);
    History warned{unstarted_spec()};
    claimed(warned);
    warned.must(event::PreflightSeen{1, 1, "n1", "warn", "clock", "60 ms", "50 ms"});
    warned.must(warned.attempt_fault(CauseClass::node_lost));
    EXPECT_EQ(action_due(warned), ActionKind::next_attempt) << "a warning fails nothing";
}

TEST(Unstarted, ThreeTimesAndThenItSaysSo) {
    History h{unstarted_spec()};
    for (int time = 0; time < kUnstarted; ++time) {
        claimed(h);
        h.must(h.attempt_fault(CauseClass::node_lost));
        ASSERT_EQ(action_due(h), ActionKind::next_attempt) << time;
        h.attempt_ends(CauseClass::node_lost);
    }
    claimed(h);
    h.must(h.attempt_fault(CauseClass::node_lost));
    EXPECT_EQ(action_due(h), ActionKind::stop);
    EXPECT_THAT(outcome(h.job).cause.message,
                testing::HasSubstr("(the 4th time before a rank was started)"));
}

TEST(Unstarted, AttemptsThatNeverRanUseUpNoneThatTheSpecGrants) {
    History h{unstarted_spec(R"(,"recovery":{"max_attempts":2})")};
    claimed(h);
    h.must(h.attempt_fault(CauseClass::scheduler));
    h.attempt_ends(CauseClass::scheduler);
    claimed(h);
    h.again();
    h.must(h.fault(CauseClass::node_lost, 1));
    EXPECT_EQ(action_due(h), ActionKind::next_attempt) << "it is the first that ran";
}

// A job of the local scheduler failed in the morning, for its agents had found no lockstepd.
TEST(Unstarted, AgentsThatEndedWhileNoLockstepdWasThereCostTheJobNothing) {
    History h{unstarted_spec(R"(,"recovery":{"max_attempts":2,"max_restarts":0})")};
    const auto unwatched = [&] {
        event::FaultSeen out = h.attempt_fault(CauseClass::scheduler);
        out.unwatched = true;
        return out;
    };
    for (int night = 0; night < 2 * kUnstarted; ++night) {
        h.attempt();
        h.placed();
        h.must(unwatched());
        ASSERT_EQ(action_due(h), ActionKind::next_attempt) << night;
        h.attempt_ends(CauseClass::scheduler);
        ASSERT_EQ(action_due(h), ActionKind::create_attempt) << night;
    }
    h.running();
    h.must(h.attempt_fault(CauseClass::preempted));
    EXPECT_EQ(action_due(h), ActionKind::next_attempt) << "it is the first that ran";
    h.attempt_ends(CauseClass::preempted);
    h.running();
    h.must(h.attempt_fault(CauseClass::preempted));
    EXPECT_EQ(action_due(h), ActionKind::stop) << "and the second was the last";

    History heard{unstarted_spec()};
    heard.attempt();
    heard.placed();
    heard.claims();
    event::FaultSeen late = heard.attempt_fault(CauseClass::scheduler);
    late.unwatched = true;
    heard.must(late);
    EXPECT_EQ(action_due(heard), ActionKind::stop) << "somebody has called in";
}

TEST(Unstarted, ALockstepdThatDiesWithItsAgentsAgainAndAgainBeginsAttemptsWithAnEnd) {
    History h{unstarted_spec()};
    std::int32_t attempts = 0;
    do {
        ASSERT_LE(++attempts, 2 * kUnwatched);
        h.attempt();
        h.placed();
        event::FaultSeen unwatched = h.attempt_fault(CauseClass::scheduler);
        unwatched.unwatched = true;
        h.must(unwatched);
        if (action_due(h) != ActionKind::next_attempt) {
            break;
        }
        h.attempt_ends(CauseClass::scheduler);
    } while (action_due(h) == ActionKind::create_attempt);
    EXPECT_EQ(attempts, kUnwatched + 1);
    EXPECT_EQ(action_due(h), ActionKind::stop);
}

TEST(Unstarted, AGenerationIsReleasedOnce) {
    History h{unstarted_spec()};
    claimed(h);
    h.generation();
    h.released();
    EXPECT_FALSE(h.add(event::RanksReleased{1, 1}).has_value());
    EXPECT_FALSE(h.add(event::RanksReleased{1, 2}).has_value());
}

}  // namespace
}  // namespace lockstep
