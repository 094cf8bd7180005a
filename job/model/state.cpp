#include "job/model/state.hpp"

#include "job/base/enum_table.hpp"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kEventKinds> kEventNames{
    "submitted",
    "attempt_created",
    "attempt_placed",
    "agent_claimed",
    "generation_started",
    "ranks_started",
    "rank_exited",
    "fault",
    "checkpoint_saved",
    "generation_ended",
    "attempt_ended",
    "cancel_requested",
    "finished",
    "attempt_submitting",
    "attempt_submitted",
    "held",
    "released",
    "agent_refused",
    "dependency_failed",
    "restart_requested",
    "ranks_released",
    "anomaly",
    "gpu_xid",
    "evidence_taken",
    "preflight",
    "warning",
    "checkpoint_requested",
    "node_returned",
    "profile_taken",
    "suspended",
};
constexpr std::array<std::string_view, kCauseClasses> kCauseNames{
    "none",       "user_error",        "rank_exit",    "rank_signal",       "oom",
    "node_lost",  "gpu_fault",         "hang",         "nonfinite_loss",    "rendezvous_timeout",
    "preempted",  "time_limit",        "scheduler",    "cancelled_by_user", "internal",
    "dependency", "restart_requested", "node_returned"};
static_assert(is_count_of<JobState, kJobStates>());
static_assert(names_all_of<EventKind>(kEventNames));
static_assert(names_all_of<CauseClass>(kCauseNames));

template <class Enum, std::size_t N>
std::optional<Enum> parse(std::string_view text, const std::array<std::string_view, N>& names) {
    for (std::size_t i = 0; i < N; ++i) {
        if (names[i] == text) {
            return static_cast<Enum>(i);
        }
    }
    return std::nullopt;
}

}  // namespace

std::string_view to_string(JobState state) {
    return row_of(state).name;
}
std::string_view to_string(EventKind kind) {
    return kEventNames[static_cast<std::size_t>(kind)];
}
std::string_view to_string(CauseClass cause) {
    return kCauseNames[static_cast<std::size_t>(cause)];
}
std::optional<JobState> parse_job_state(std::string_view text) {
    for (const JobStateRow& row : kJobStateRows) {
        if (row.name == text) {
            return row.state;
        }
    }
    return std::nullopt;
}
std::optional<EventKind> parse_event_kind(std::string_view text) {
    return parse<EventKind>(text, kEventNames);
}
std::optional<CauseClass> parse_cause_class(std::string_view text) {
    return parse<CauseClass>(text, kCauseNames);
}

}  // namespace lockstep
