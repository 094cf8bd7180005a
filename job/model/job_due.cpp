// What a job needs next, and how it ends.
#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/job.hpp"
#include "job/model/recovery.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::string_view kNcclsWord = "\nLast error:\n";  // torch's, c10d/NCCLUtils.cpp
constexpr std::size_t kErrorLine = 300;  // of an exception's message, in a sentence

// Its first line that says something: transformers' messages begin with an empty one. One that ends
// with a colon announces the next, which is what is wrong (torch's load_state_dict). Of an
// error of NCCL's torch says first where it was called, and last what NCCL itself said.
std::string sentence_of(std::string_view error) {
    std::string out;
    std::string_view last;
    if (const auto at = error.find(kNcclsWord); at != std::string_view::npos) {
        last = error.substr(at + kNcclsWord.size());
        last = trim(last.substr(0, std::min({last.find('\n'), last.size(), kErrorLine})));
    }
    while (!error.empty() && out.size() < kErrorLine && (out.empty() || out.ends_with(':'))) {
        const std::size_t end = std::min(error.find('\n'), error.size());
        const std::string_view line = trim(error.substr(0, end));
        out += (out.empty() || line.empty() ? "" : " ") + std::string{line};
        error.remove_prefix(std::min(end + 1, error.size()));
    }
    out.resize(std::min(out.size(), kErrorLine));
    return last.empty() ? out : out + ": " + std::string{last};
}

std::string signal_name(int number) {
    const char* name = sigabbrev_np(number);
    return name != nullptr ? "SIG" + std::string{name} : "signal " + std::to_string(number);
}

std::string missing_nodes(const Job& job) {
    std::string out;
    for (std::int32_t slot = 0; slot < job.spec.resources.allocated_nodes(); ++slot) {
        if (!job.attempt()->claims.contains(slot) && out.size() < limits::kTextBytes) {
            out += " node " + std::to_string(slot);
        }
    }
    return out;
}

// The ranks of a generation have not been started, or the nodes have not met, for too long.
std::string never_met(const Job& job, const Waited& waited) {
    const Attempt& attempt = *job.attempt();
    const auto patience = limits::kGatherTimeout;
    const std::string within = " within " + std::to_string(patience.count()) + " s";
    const Generation* newest = job.generation();
    if (attempt.suspended()) {
        return "";  // nobody can come; WaitClock begins anew when it goes on
    }
    if (job.state == JobState::starting && newest != nullptr && newest->running_at == 0 &&
        waited.formed >= patience) {
        return "the ranks of generation " + std::to_string(newest->number) +
               " were not all started" + within;
    }
    if (job.state == JobState::starting && newest == nullptr && waited.placed >= patience) {
        return std::to_string(attempt.claims.size()) + " of " +
               std::to_string(job.spec.resources.least_nodes()) + " nodes called in" + within +
               "; missing:" + missing_nodes(job);
    }
    if (job.state == JobState::restarting && newest != nullptr && waited.ended >= patience) {
        return "the nodes did not meet again" + within;
    }
    return "";
}

// A deadline of the job that has passed, as the fault to append.
std::optional<event::FaultSeen> passed_deadline(const Job& job, const Waited& waited) {
    const Attempt& attempt = *job.attempt();
    event::FaultSeen fault;
    fault.attempt = attempt.number;
    fault.generation = job.live_generation() != nullptr ? job.live_generation()->number : 0;
    const std::chrono::seconds limit{job.spec.resources.time_limit_seconds};
    // Where nobody has claimed it nothing has run: what becomes of it is the scheduler's to say.
    if (limit.count() > 0 && attempt.placed_at != 0 && !attempt.claims.empty() &&
        waited.ran >= limit) {
        fault.cause_class = CauseClass::time_limit;
        fault.message = "the time limit of " +
                        format_time_limit(job.spec.resources.time_limit_seconds) + " has passed";
        return fault;
    }
    if (std::string why = never_met(job, waited); !why.empty()) {
        fault.cause_class = CauseClass::rendezvous_timeout;
        fault.message = std::move(why);
        return fault;
    }
    return std::nullopt;
}

}  // namespace

Cause cause_of(const event::RankExited& exit) {
    Cause cause;
    cause.rank = exit.launcher ? -1 : exit.rank;
    cause.node = exit.node;
    cause.log_tail = exit.log_tail;
    cause.error_type = exit.error_type;
    cause.error = exit.error;
    cause.traceback = exit.traceback;
    const std::string who = exit.launcher
                                ? "the process that starts the ranks of " + exit.node
                                : "rank " + std::to_string(exit.rank) + " on " + exit.node;
    const std::string line = sentence_of(exit.error);
    // SIGTERM: it was told to end while it was on its way out.
    const bool raised = !exit.error_type.empty() && exit.error_type != "SystemExit" &&
                        (exit.signal == 0 || exit.signal == SIGTERM);
    if (raised) {
        cause.exit_code = exit.exit_code;
        cause.signal = exit.signal;
        cause.kind = CauseClass::rank_exit;
        cause.message = who + " raised " + exit.error_type;
        cause.message += line.empty() ? "" : ": " + line;
    } else if (exit.signal != 0) {
        cause.signal = exit.signal;
        cause.kind = exit.oom ? CauseClass::oom : CauseClass::rank_signal;
        cause.message = who + (exit.oom ? " was killed for lack of memory"
                                        : " was ended by " + signal_name(exit.signal));
    } else {
        cause.exit_code = exit.exit_code;
        cause.kind = CauseClass::rank_exit;
        cause.message = who + " exited with code " + std::to_string(exit.exit_code);
        // sys.exit("no data in …"): the words are why; a number is the code itself.
        const bool words = (exit.error_type == "SystemExit" || exit.error_type.empty()) &&
                           line.find_first_not_of("-0123456789") != std::string::npos;
        cause.message += words ? ": " + line : "";
    }
    return cause;
}

Cause cause_of(const event::FaultSeen& fault) {
    Cause cause;
    cause.kind = fault.cause_class;
    // What a program said about it, if it did, begins in the second line (a setup's output).
    const std::size_t line = std::min(fault.message.find('\n'), fault.message.size());
    cause.message = fault.message.substr(0, line);
    if (line < fault.message.size()) {
        cause.log_tail = fault.message.substr(line + 1);
    }
    cause.rank = fault.rank;
    cause.node = fault.node;
    return cause;
}

Cause with_others(const Job& job, Cause cause) {
    const Generation* newest = job.generation();
    const bool of_echoes = newest != nullptr && newest->open() && newest->first_failure &&
                           newest->first_failure_kind == FailureKind::echo;
    if (newest == nullptr ||
        (!of_echoes && (cause.rank < 0 || !newest->failed.contains(cause.rank)))) {
        return cause;
    }
    std::vector<std::tuple<UnixMillis, std::int32_t, const event::RankExited*>> order;
    for (const auto& [rank, exit] : newest->failed) {
        if (rank != cause.rank && !exit.stopped) {
            order.emplace_back(exit.failed_at != 0 ? exit.failed_at : exit.at, rank, &exit);
        }
    }
    const std::size_t most = std::min(order.size(), limits::kOthersNamed);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most),
                      order.end());
    cause.others = Json::array();
    cause.others_total = static_cast<std::int64_t>(order.size());
    for (std::size_t i = 0; i < most; ++i) {
        const event::RankExited& exit = *std::get<2>(order[i]);
        Json one = Json::object();
        one["rank"] = exit.rank;
        one["node"] = exit.node;
        one[exit.signal != 0 ? "signal" : "exit_code"] =
            exit.signal != 0 ? exit.signal : exit.exit_code;
        one["failure"] =
            exit.failure.empty() ? std::string{to_string(FailureKind::own)} : exit.failure;
        const std::string line = sentence_of(exit.error);
        const std::string joint = exit.error_type.empty() || line.empty() ? "" : ": ";
        std::string error = exit.error_type;
        error += joint;
        error += line;
        if (!error.empty()) {
            one["error"] = std::move(error);
        }
        cause.others.push_back(std::move(one));
    }
    return cause;
}

bool all_ranks_ended(const Job& job) {
    const Generation* current = job.generation();
    return current != nullptr &&
           current->exited_count == static_cast<std::int32_t>(current->exited.size());
}

bool node_ended(const Job& job, std::int32_t node_rank) {
    const Generation* generation = job.generation();
    const auto per_node = static_cast<std::size_t>(job.spec.ranks_per_node());
    const std::size_t first = static_cast<std::size_t>(node_rank) * per_node;
    for (std::size_t local = 0; generation != nullptr && local < per_node; ++local) {
        if (!generation->exited[first + local]) {
            return false;
        }
    }
    return generation != nullptr;
}

std::string_view to_string(ActionKind kind) {
    constexpr std::array<std::string_view, 9> kNames{"create_attempt", "place",    "gather",
                                                     "watch",          "restart",  "next_attempt",
                                                     "stop",           "conclude", "none"};
    static_assert(names_all_of<ActionKind>(kNames));
    return kNames[static_cast<std::size_t>(kind)];
}

Action due(const Job& job, const Waited& waited) {
    Action action;
    if (is_final(job.state)) {
        return action;
    }
    const Attempt* attempt = job.attempt();
    if (attempt == nullptr || attempt->finished_at != 0) {
        // Between attempts: either nothing was asked for yet, or what was asked for is over.
        const bool wanted = (attempt == nullptr || job.state == JobState::requeued) &&
                            job.cancel_requested_at == 0 && !job.blocked;
        action.kind = wanted ? ActionKind::create_attempt : ActionKind::conclude;
        return action;
    }
    if (work_done(job)) {
        action.kind = all_ranks_ended(job) ? ActionKind::conclude : ActionKind::stop;
        action.cause.message = job.spec.preflight.mode == PreflightMode::only
                                   ? "the pre-flight is over"
                                   : "the ranks that end the job have ended";
        return action;
    }
    if (auto answer = answer_to_failure(job, waited)) {
        return std::move(*answer);
    }
    if (job.live_generation() != nullptr && all_ranks_ended(job)) {
        action.kind = ActionKind::conclude;
        return action;
    }
    action.fault = passed_deadline(job, waited);
    if (action.fault) {
        action.kind = ActionKind::stop;
        return action;
    }
    switch (job.state) {
        case JobState::queued:
        case JobState::held:
            action.kind = ActionKind::place;
            break;
        case JobState::starting:
        case JobState::restarting:
            action.kind = ActionKind::gather;
            break;
        default:
            action.kind = ActionKind::watch;
            break;
    }
    return action;
}

void Attempt::take_preflight(const event::PreflightSeen& seen) {
    if (seen.severity == kPreflightPassed) {
        preflight_passed = true;
    } else {
        preflight.push_back({seen.slot, seen.node, seen.check, seen.found, seen.expected,
                             seen.severity == kPreflightFail});
    }
}

bool work_done(const Job& job) {
    if (job.spec.preflight.mode == PreflightMode::only) {
        return job.attempt() != nullptr && job.attempt()->preflight_passed;
    }
    const Generation* generation = job.generation();
    if (generation == nullptr) {
        return false;
    }
    // A rank that was told to stop and then exited with 0 has not finished its work.
    const auto ended_well = [&](std::size_t rank) {
        const auto number = static_cast<std::int32_t>(rank);
        return generation->exited[rank] && !generation->failed.contains(number) &&
               !generation->stopped.contains(number);
    };
    std::size_t first = 0;
    for (const RoleSpec& role : job.spec.roles) {
        const std::size_t next = first + static_cast<std::size_t>(role.count);
        for (std::size_t rank = first; role.ends_job && rank < next; ++rank) {
            if (!ended_well(rank)) {
                return false;
            }
        }
        first = next;
    }
    return !job.spec.roles.empty() ||
           (generation->exited_count == static_cast<std::int32_t>(generation->exited.size()) &&
            generation->failed.empty() && generation->stopped.empty());
}

event::Finished outcome(const Job& job) {
    event::Finished end;
    const Generation* generation = job.generation();
    const bool complete = job.live_generation() != nullptr && all_ranks_ended(job);
    if (work_done(job)) {
        // A cancel or a deadline that came too late changes nothing.
        end.state = JobState::succeeded;
        return end;
    }
    std::optional<Cause> reason;
    if (!job.attempts.empty()) {
        reason = reason_to_stop(job);
    } else if (job.cancel_requested_at != 0) {
        reason = Cause{};
        reason->kind = CauseClass::cancelled_by_user;
        reason->message = "cancelled by " + job.cancel_requested_by;
    } else {
        reason = job.blocked;
    }
    if (!reason && complete && !generation->failed.empty()) {
        // All failures were ranks stopped from outside (somebody signalled the agent).
        reason = cause_of(generation->failed.begin()->second);
    }
    if (!reason) {
        reason = Cause{};
        reason->kind = complete ? CauseClass::rank_signal : CauseClass::internal;
        reason->message =
            complete ? "the ranks were stopped from outside Lockstep" : "ended without a cause";
    }
    if (!job.attempts.empty()) {
        if (const RecoveryPlan plan = plan_recovery(job, *reason); !plan.why.empty()) {
            reason->message += " (" + plan.why + ")";
        }
    }
    end.state =
        reason->kind == CauseClass::cancelled_by_user ? JobState::cancelled : JobState::failed;
    end.cause = with_others(job, std::move(*reason));
    return end;
}

}  // namespace lockstep
