// size: the life of a job and the table of its states
#include "job/base/limits.hpp"
#include "job/model/invariants.hpp"
#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// An event of the kind that names the current attempt, generation and a free rank.
EventData fitting(EventKind kind) {
    switch (kind) {
        case EventKind::submitted:
            return event::Submitted{};
        case EventKind::attempt_created:
            return event::AttemptCreated{2, "", ""};
        case EventKind::attempt_placed:
            return event::AttemptPlaced{1, ""};
        case EventKind::agent_claimed:
            return event::AgentClaimed{1, 1, "n1", "i1", 1};
        case EventKind::generation_started:
            return event::GenerationStarted{1, 2, "", 0, {}, -1};
        case EventKind::anomaly:
            return event::AnomalySeen{1, 1, 0, "n", "straggler", 3, "busy"};
        case EventKind::ranks_released:
            return event::RanksReleased{1, 1};
        case EventKind::ranks_started:
            return event::RanksStarted{1, 1};
        case EventKind::rank_exited: {
            event::RankExited out;
            out.attempt = out.generation = 1;
            out.exit_code = 0;
            return out;
        }
        case EventKind::fault: {
            event::FaultSeen out;
            out.attempt = out.generation = 1;
            out.cause_class = CauseClass::hang;
            return out;
        }
        case EventKind::checkpoint_saved:
            return event::CheckpointSaved{1, 1, 5, "p"};
        case EventKind::node_returned:
            return event::NodeReturned{1, 1, "n1", "i1", 17};
        case EventKind::checkpoint_requested:
            return event::CheckpointRequested{1, 1, "ada", "USR2"};
        case EventKind::generation_ended:
            return event::GenerationEnded{1, 1, {}};
        case EventKind::attempt_ended:
            return event::AttemptEnded{1, {}};
        case EventKind::cancel_requested:
            return event::CancelRequested{"ada"};
        case EventKind::finished:
            return event::Finished{JobState::failed, {}, -1};
        case EventKind::attempt_submitting:
            return event::AttemptSubmitting{1, 1};
        case EventKind::attempt_submitted:
            return event::AttemptSubmitted{1, "17"};
        case EventKind::held:
            return event::Held{1, "why"};
        case EventKind::released:
            return event::Released{1};
        case EventKind::agent_refused:
            return event::AgentRefused{1, 1, "n1", "its clock"};
        case EventKind::dependency_failed:
            return event::DependencyFailed{"ls-1", "why"};
        case EventKind::restart_requested:
            return event::RestartRequested{1, 1, "ada"};
        case EventKind::preflight:
            return event::PreflightSeen{1, 0, "n0", "warn", "clock", "60 ms", "50 ms"};
        case EventKind::gpu_xid:
            return event::GpuXid{1, 1, 0, "n0", 3, 79, 99};
        case EventKind::warning:
            return event::WarningGiven{1, 1, -1, "n0", "look at it"};
        case EventKind::evidence_taken:
            return event::EvidenceTaken{1, 1, "a hang", "all of it", 7, Json::array()};
    }
    return event::Submitted{};
}

// A job in the state, with one attempt that has one generation (its ranks not exited) and node 0's
// claim, so that a fitting event fails only where the table says so. `ended`: the generation has.
Job job_in(JobState state, bool ended) {
    History history;
    history.attempt();
    history.placed();
    history.claim(0);
    history.generation();
    if (ended) {
        history.must(event::GenerationEnded{1, 1, {}});
    }
    if (state == JobState::requeued || state == JobState::accepted) {
        history.must(event::AttemptEnded{1, {}});
    }
    if (state == JobState::queued || state == JobState::starting) {
        history.job.attempts.back().claims.clear();
    }
    history.job.state = state;
    return history.job;
}

// One that may come back.
void lose_a_node(Job& job) {
    job.spec.resources.min_nodes = 1;
    Attempt& attempt = job.attempts.back();
    attempt.claims[1] = NodeClaim{"n1", "i0", 16};
    attempt.lost[1].kind = CauseClass::node_lost;
    attempt.absent.insert(1);
}

// A generation starts once the one before has ended; what happens in one happens before that.
bool after_a_generation(JobState state, EventKind kind) {
    return kind == EventKind::generation_started || state == JobState::restarting;
}

TEST(JobFold, FollowsTheTableForEveryStateAndEvent) {
    std::size_t legal = 0;
    for (std::size_t s = 0; s < kJobStates; ++s) {
        for (std::size_t k = 0; k < kEventKinds; ++k) {
            const auto state = static_cast<JobState>(s);
            const auto kind = static_cast<EventKind>(k);
            SCOPED_TRACE(std::string{to_string(state)} + " × " + std::string{to_string(kind)});
            Job job = job_in(state, after_a_generation(state, kind));
            if (kind == EventKind::node_returned) {
                lose_a_node(job);
            }
            const Json before = job_json(job, LiveView{});
            Event event;
            event.seq = 99;
            event.time = 5'000'000;
            event.data = fitting(kind);
            const auto applied = apply(job, event);
            auto expected = next(state, kind);
            if (kind == EventKind::finished && !is_final(state)) {
                expected = JobState::failed;
            }
            ASSERT_EQ(applied.has_value(), expected.has_value())
                << (applied ? "" : applied.error().message);
            if (expected) {
                ++legal;
                EXPECT_EQ(job.state, *expected);
                EXPECT_EQ(job.last_seq, 99);
            } else {
                EXPECT_EQ(applied.error().code, Errc::conflict);
                EXPECT_EQ(job_json(job, LiveView{}), before);
            }
        }
    }
    // The table, plus cancel_requested, finished and warning in each of the seven states that are
    // not final, agent_refused and preflight in those with an attempt.
    EXPECT_EQ(legal, kTransitions.size() + 7 + 7 + 7 + 5 + 5);
}

// An agent that has reconnected says it again.
TEST(JobFold, AnErrorOfAGpuIsTakenOnceAndNotWithoutEnd) {
    Job job = job_in(JobState::running, false);
    Event event;
    event.data = event::GpuXid{1, 1, 0, "n0", 3, 79, 99};
    event.seq = 99;
    EXPECT_TRUE(apply(job, event).has_value());
    event.seq = 100;
    EXPECT_FALSE(apply(job, event).has_value());
    for (std::size_t i = 1; i < limits::kXidEvents; ++i) {
        event.data = event::GpuXid{1, 1, 0, "n0", 3, 79, static_cast<UnixMillis>(99 + i)};
        EXPECT_TRUE(apply(job, event).has_value());
        ++event.seq;
    }
    event.data = event::GpuXid{1, 1, 0, "n0", 3, 79, 5000};
    EXPECT_FALSE(apply(job, event).has_value());
}

TEST(JobFold, AWarningIsShownOnceBesideThoseOfTheAdmissionAndNotWithoutEnd) {
    Job job = job_in(JobState::running, false);
    const std::size_t before = job.warnings.size();
    Event event;
    event.data = event::WarningGiven{1, 1, -1, "n0", "look at it"};
    EXPECT_TRUE(apply(job, event).has_value());
    EXPECT_FALSE(apply(job, event).has_value()) << "said already";
    EXPECT_EQ(job.state, JobState::running);
    EXPECT_EQ(job_json(job, LiveView{})["warnings"].back(), "look at it");
    for (std::size_t i = before + 1; i < limits::kJobWarnings; ++i) {
        event.data = event::WarningGiven{1, 1, -1, "n0", std::to_string(i)};
        EXPECT_TRUE(apply(job, event).has_value());
    }
    event.data = event::WarningGiven{1, 1, -1, "n0", "one too many"};
    EXPECT_FALSE(apply(job, event).has_value());
}

TEST(JobFold, FinalStatesTakeNothing) {
    for (const JobState state : {JobState::succeeded, JobState::failed, JobState::cancelled}) {
        for (std::size_t k = 0; k < kEventKinds; ++k) {
            EXPECT_FALSE(next(state, static_cast<EventKind>(k)).has_value());
        }
        EXPECT_EQ(due(job_in(state, true), 0).kind, ActionKind::none);
    }
}

TEST(JobFold, EveryStateHasSomethingDue) {
    for (std::size_t s = 0; s < kJobStates; ++s) {
        const auto state = static_cast<JobState>(s);
        for (const bool ended : {false, true}) {
            EXPECT_EQ(due(job_in(state, ended), kStart).kind == ActionKind::none, is_final(state))
                << to_string(state);
        }
    }
}

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

TEST(JobView, ShowsTheContractsFieldsAndLeavesUnknownOnesOut) {
    History h;
    Json early = job_json(h.job, LiveView{});
    EXPECT_EQ(early["state"], "accepted");
    for (const char* absent :
         {"started_at", "finished_at", "step", "ettr", "spans", "lost_steps", "cause"}) {
        EXPECT_FALSE(early.contains(absent)) << absent;
    }
    h.running();
    LiveView live;
    live.step = 12;
    live.now = h.now + 20'000;
    live.reports = {{1, 1, 1, 10, h.now + 10'000, h.now + 20'000, 0}};
    const Json view = job_json(h.job, live);
    EXPECT_EQ(view["step"], 12);
    EXPECT_EQ(view["ettr"], 0.5);
    EXPECT_EQ(view["spans"]["init_seconds"], 10);
    EXPECT_EQ(view["spans"]["lost_seconds"], 0);
    EXPECT_FALSE(view.contains("lost_steps"));
    EXPECT_EQ(view["attempts"][0]["generations"][0]["step"], 10);
    EXPECT_EQ(view["attempts"][0]["nodes"], Json::parse(R"(["n0","n1"])"));
    EXPECT_EQ(view["attempts"][0]["generations"][0]["number"], 1);
    EXPECT_EQ(rank_json(h.job, 3)["node"], "n1");
    EXPECT_EQ(rank_json(h.job, 3)["state"], "running");
    h.must(h.exit(3, 4));
    EXPECT_EQ(rank_json(h.job, 3)["exit_code"], 4);
    EXPECT_EQ(rank_json(h.job, 3)["state"], "failed");
}

// Ranks report their checkpoints each for itself, and a lagging one says so late.
TEST(Job, AnOlderCheckpointDoesNotReplaceANewerOne) {
    History h;
    h.running();
    h.must(event::CheckpointSaved{1, 1, 20, "twenty"});
    const UnixMillis at = h.job.checkpoint_at;
    h.must(event::CheckpointSaved{1, 1, 10, "ten"});
    EXPECT_EQ(h.job.checkpoint_step, 20);
    EXPECT_EQ(h.job.checkpoint_path, "twenty");
    EXPECT_EQ(h.job.checkpoint_at, at);
    h.must(event::CheckpointSaved{1, 1, 20, "twenty, again"});  // of another rank
    EXPECT_EQ(h.job.checkpoint_path, "twenty, again");
    h.must(event::CheckpointSaved{1, 1, 30, "thirty"});
    EXPECT_EQ(h.job.checkpoint_step, 30);
    EXPECT_EQ(h.job.generation()->checkpoints, 4);
}

}  // namespace
}  // namespace lockstep
