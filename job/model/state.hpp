// The states of a job as data: a row each, from which names, OpenAPI's enum, the choices and the
// colours of the CLI follow. A job is a pure fold over its events (job.hpp); here, too, is the
// table of which state follows which event. Values only; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

// In the order of the rows.
enum class JobState : std::uint8_t {
    accepted,
    queued,
    starting,
    running,
    restarting,
    requeued,
    held,
    succeeded,
    failed,
    cancelled,
};

// What a state says at a glance, by its colour.
enum class StateTone : std::uint8_t { waits, good, disturbed, bad };

struct JobStateRow {
    JobState state{};
    std::string_view name;  // part of the API
    bool final = false;     // no event follows
    StateTone tone{};
    std::string_view description;  // in OpenAPI; "" = as the name says
};

inline constexpr std::array kJobStateRows{
    // Durable; not submitted to the scheduler yet.
    JobStateRow{JobState::accepted, "accepted", false, StateTone::waits, "on disk"},
    // The scheduler has it, or will as soon as there is room.
    JobStateRow{JobState::queued, "queued", false, StateTone::waits, "with the scheduler"},
    // The allocation is there; agents call in, ranks meet.
    JobStateRow{JobState::starting, "starting", false, StateTone::waits, "it has nodes"},
    // Every rank of the generation has been started.
    JobStateRow{JobState::running, "running", false, StateTone::good, ""},
    // A generation ended early, the next one is forming in the same allocation.
    JobStateRow{JobState::restarting, "restarting", false, StateTone::disturbed,
                "between two generations"},
    // The allocation is gone, another attempt is coming.
    JobStateRow{JobState::requeued, "requeued", false, StateTone::disturbed,
                "waits for another attempt"},
    JobStateRow{JobState::held, "held", false, StateTone::disturbed, "waits for a person"},
    JobStateRow{JobState::succeeded, "succeeded", true, StateTone::good, ""},
    JobStateRow{JobState::failed, "failed", true, StateTone::bad, ""},
    JobStateRow{JobState::cancelled, "cancelled", true, StateTone::disturbed, ""},
};
inline constexpr std::size_t kJobStates = kJobStateRows.size();

constexpr const JobStateRow& row_of(JobState state) {
    return kJobStateRows[static_cast<std::size_t>(state)];
}
static_assert(
    [] {
        for (std::size_t i = 0; i < kJobStates; ++i) {
            if (static_cast<std::size_t>(kJobStateRows[i].state) != i) {
                return false;
            }
        }
        return true;
    }(),
    "a row has the place of its enumerator");

enum class EventKind : std::uint8_t {
    submitted,
    attempt_created,
    attempt_placed,
    agent_claimed,
    generation_started,
    ranks_started,
    rank_exited,
    fault,
    checkpoint_saved,
    generation_ended,
    attempt_ended,
    cancel_requested,
    finished,
    attempt_submitting,
    attempt_submitted,
    held,
    released,
    agent_refused,
    dependency_failed,
    restart_requested,
    ranks_released,
    anomaly,
    gpu_xid,
    evidence_taken,
    preflight,
    warning,
    checkpoint_requested,
    node_returned,
    profile_taken,
    suspended,
};
inline constexpr std::size_t kEventKinds = 30;

// Why a job, an attempt or a generation ended. Words are part of the API (job/README.md).
enum class CauseClass : std::uint8_t {
    none,
    user_error,
    rank_exit,
    rank_signal,
    oom,
    node_lost,
    gpu_fault,
    hang,
    nonfinite_loss,
    rendezvous_timeout,
    preempted,
    time_limit,
    scheduler,
    cancelled_by_user,
    internal,
    dependency,         // a job that it was to run after did not succeed
    restart_requested,  // of a generation: somebody asked for the next one
    node_returned,      // of a generation: the next one has more nodes
};
inline constexpr std::size_t kCauseClasses = 18;

std::string_view to_string(JobState state);
std::string_view to_string(EventKind kind);
std::string_view to_string(CauseClass cause);
std::optional<JobState> parse_job_state(std::string_view text);
std::optional<EventKind> parse_event_kind(std::string_view text);
std::optional<CauseClass> parse_cause_class(std::string_view text);

constexpr bool is_final(JobState state) {
    return row_of(state).final;
}

// What an event does to the state. `finished` names its own target state, so it is not in the
// table: it is legal from every state that is not final.
struct Transition {
    JobState from;
    EventKind on;
    JobState to;
};

inline constexpr std::array kTransitions{
    Transition{JobState::accepted, EventKind::attempt_created, JobState::queued},
    Transition{JobState::accepted, EventKind::dependency_failed, JobState::accepted},
    Transition{JobState::requeued, EventKind::attempt_created, JobState::queued},
    Transition{JobState::queued, EventKind::attempt_submitting, JobState::queued},
    Transition{JobState::queued, EventKind::attempt_submitted, JobState::queued},
    Transition{JobState::queued, EventKind::held, JobState::held},
    Transition{JobState::queued, EventKind::attempt_placed, JobState::starting},
    Transition{JobState::queued, EventKind::fault, JobState::queued},
    Transition{JobState::queued, EventKind::attempt_ended, JobState::requeued},
    // What the scheduler held it has forgotten, or started and lost between two looks.
    Transition{JobState::held, EventKind::attempt_submitting, JobState::queued},
    Transition{JobState::held, EventKind::attempt_submitted, JobState::held},
    Transition{JobState::held, EventKind::released, JobState::queued},
    Transition{JobState::held, EventKind::attempt_placed, JobState::starting},
    Transition{JobState::held, EventKind::fault, JobState::held},
    Transition{JobState::held, EventKind::attempt_ended, JobState::requeued},
    // The scheduler forgot what it had started before any agent called in.
    Transition{JobState::starting, EventKind::attempt_submitting, JobState::queued},
    Transition{JobState::starting, EventKind::agent_claimed, JobState::starting},
    Transition{JobState::starting, EventKind::generation_started, JobState::starting},
    Transition{JobState::starting, EventKind::ranks_released, JobState::starting},
    Transition{JobState::starting, EventKind::ranks_started, JobState::running},
    Transition{JobState::starting, EventKind::rank_exited, JobState::starting},
    Transition{JobState::starting, EventKind::checkpoint_saved, JobState::starting},
    Transition{JobState::starting, EventKind::fault, JobState::starting},
    Transition{JobState::starting, EventKind::generation_ended, JobState::restarting},
    Transition{JobState::starting, EventKind::attempt_ended, JobState::requeued},
    Transition{JobState::running, EventKind::anomaly, JobState::running},
    Transition{JobState::running, EventKind::rank_exited, JobState::running},
    Transition{JobState::running, EventKind::fault, JobState::running},
    Transition{JobState::running, EventKind::checkpoint_saved, JobState::running},
    Transition{JobState::running, EventKind::generation_ended, JobState::restarting},
    Transition{JobState::running, EventKind::attempt_ended, JobState::requeued},
    Transition{JobState::starting, EventKind::restart_requested, JobState::starting},
    Transition{JobState::running, EventKind::restart_requested, JobState::running},
    // It begins nothing: the ranks are being started anew already, and it is done with that.
    Transition{JobState::restarting, EventKind::restart_requested, JobState::restarting},
    Transition{JobState::requeued, EventKind::restart_requested, JobState::requeued},
    Transition{JobState::starting, EventKind::evidence_taken, JobState::starting},
    Transition{JobState::running, EventKind::evidence_taken, JobState::running},
    Transition{JobState::running, EventKind::profile_taken, JobState::running},
    Transition{JobState::running, EventKind::checkpoint_requested, JobState::running},
    // The scheduler has stopped all that runs in the allocation, or lets it go on.
    Transition{JobState::starting, EventKind::suspended, JobState::starting},
    Transition{JobState::running, EventKind::suspended, JobState::running},
    Transition{JobState::restarting, EventKind::suspended, JobState::restarting},
    // Of a spare that is not needed yet, or that was asked for when its turn came.
    Transition{JobState::running, EventKind::agent_claimed, JobState::running},
    Transition{JobState::restarting, EventKind::agent_claimed, JobState::restarting},
    Transition{JobState::restarting, EventKind::fault, JobState::restarting},
    Transition{JobState::restarting, EventKind::generation_started, JobState::starting},
    Transition{JobState::restarting, EventKind::attempt_ended, JobState::requeued},
    // One that was lost is there again; it waits for the next generation.
    Transition{JobState::starting, EventKind::node_returned, JobState::starting},
    Transition{JobState::running, EventKind::node_returned, JobState::running},
    Transition{JobState::restarting, EventKind::node_returned, JobState::restarting},
    // A GPU's driver may report errors in any of these states.
    Transition{JobState::starting, EventKind::gpu_xid, JobState::starting},
    Transition{JobState::running, EventKind::gpu_xid, JobState::running},
    Transition{JobState::restarting, EventKind::gpu_xid, JobState::restarting},
};

// The state after the event, or nothing when the event has no place in `from`. cancel_requested
// changes no state: the job goes on until what runs has stopped. Nor does a warning; nor do
// agent_refused and preflight: the agents that are welcome go on; between attempts there is none to
// refuse or to look at.
constexpr std::optional<JobState> next(JobState from, EventKind on) {
    if (((on == EventKind::cancel_requested || on == EventKind::warning) && !is_final(from)) ||
        ((on == EventKind::agent_refused || on == EventKind::preflight) && !is_final(from) &&
         from != JobState::accepted && from != JobState::requeued)) {
        return from;
    }
    for (const auto& transition : kTransitions) {
        if (transition.from == from && transition.on == on) {
            return transition.to;
        }
    }
    return std::nullopt;
}

static_assert(!next(JobState::succeeded, EventKind::cancel_requested), "final states stay final");
static_assert(!next(JobState::cancelled, EventKind::attempt_created), "final states stay final");
static_assert(next(JobState::queued, EventKind::attempt_placed) == JobState::starting);

}  // namespace lockstep
