// The fold: what every event does to a job in every state.
#include "job/base/limits.hpp"
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
            return event::RestartRequested{1, 1, "ada", "", "its key"};
        case EventKind::preflight:
            return event::PreflightSeen{1, 0, "n0", "warn", "clock", "60 ms", "50 ms"};
        case EventKind::gpu_xid:
            return event::GpuXid{1, 1, 0, "n0", 3, 79, 99};
        case EventKind::warning:
            return event::WarningGiven{1, 1, -1, "n0", "look at it"};
        case EventKind::profile_taken:
            return event::ProfileTaken{1, 1, 1, "ada", 5, "2 ranks", Json::array()};
        case EventKind::suspended:
            return event::Suspended{1, false, "it is suspended"};
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
    if (state == JobState::queued || state == JobState::held || state == JobState::starting) {
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
