#include "job/model/recovery.hpp"

#include "job/base/limits.hpp"
#include "job/model/echo.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

Cause cancelled(const Job& job) {
    Cause cause;
    cause.kind = CauseClass::cancelled_by_user;
    cause.message = "cancelled by " + job.cancel_requested_by;
    return cause;
}

RecoveryPlan none(std::string why = "") {
    return {Recovery::none, std::move(why)};
}

std::string crash_loop_words(const Attempt& attempt) {
    const std::int64_t step = attempt.generations.back().step;
    return "crash loop: " + std::to_string(kCrashLoop) + " generations in a row ended " +
           (step < 0 ? std::string{"before their first step"} : "at step " + std::to_string(step));
}

// Allocations before this one that ended before a rank was started; more than kUnstarted are none
// to forgive.
std::int32_t unstarted_before(const Job& job) {
    const auto count = std::count_if(
        job.attempts.begin(), job.attempts.end() - 1,
        [](const Attempt& attempt) { return !attempt.allocation.empty() && unstarted(attempt); });
    return std::min(static_cast<std::int32_t>(count), kUnstarted);
}

// Attempts before this one that are nobody's failure; more than kUnwatched are.
std::int32_t unwatched_before(const Job& job) {
    const auto count = std::count_if(job.attempts.begin(), job.attempts.end() - 1,
                                     [](const Attempt& attempt) { return attempt.unwatched; });
    return std::min(static_cast<std::int32_t>(count), kUnwatched);
}

// What may be answered by another generation, and is counted among the restarts then.
bool is_of_ranks(CauseClass cause) {
    const auto trigger = trigger_of(cause);
    return cause == CauseClass::nonfinite_loss || trigger == RecoveryTrigger::rank_failure ||
           trigger == RecoveryTrigger::node_failure || trigger == RecoveryTrigger::hang;
}

bool is_wanted(const RecoverySpec& spec, CauseClass cause) {
    if (cause == CauseClass::nonfinite_loss) {
        return spec.on_nonfinite_loss == NonfiniteLoss::restart;
    }
    const auto trigger = trigger_of(cause);
    return trigger && spec.has(*trigger);
}

// Began at a newer checkpoint than `first` and ended at a smaller number than that of it: its steps
// are not known, or counted anew, and were made.
bool has_gone_on(const Generation& first, const Generation& newest) {
    return newest.resumed_from_step > first.resumed_from_step &&
           newest.step < newest.resumed_from_step;
}

bool ran_long(const Generation& one) {
    return one.running_at != 0 && one.finished_at - one.running_at >= kLongGeneration;
}

}  // namespace

std::optional<RecoveryTrigger> trigger_of(CauseClass cause) {
    switch (cause) {
        case CauseClass::rank_exit:
        case CauseClass::rank_signal:
        case CauseClass::oom:
            return RecoveryTrigger::rank_failure;
        case CauseClass::node_lost:
        case CauseClass::gpu_fault:
            return RecoveryTrigger::node_failure;
        case CauseClass::hang:
            return RecoveryTrigger::hang;
        case CauseClass::preempted:
            return RecoveryTrigger::preemption;
        case CauseClass::time_limit:
            return RecoveryTrigger::time_limit;
        default:
            return std::nullopt;  // the same would happen again
    }
}

std::int32_t usable_nodes(const Job& job) {
    const Attempt* attempt = job.attempt();
    if (attempt == nullptr) {
        return job.spec.resources.allocated_nodes();
    }
    if (attempt->generations.empty()) {
        return job.spec.resources.allocated_nodes() -
               static_cast<std::int32_t>(attempt->lost.size());
    }
    // Once the ranks have met, a node that has never called in is none to count on.
    return static_cast<std::int32_t>(
        std::count_if(attempt->claims.begin(), attempt->claims.end(),
                      [&](const auto& claim) { return !attempt->lost.contains(claim.first); }));
}

std::int32_t restarts_used(const Job& job) {
    std::int32_t used = 0;
    for (const Attempt& attempt : job.attempts) {
        used += static_cast<std::int32_t>(std::count_if(
            attempt.generations.begin(), attempt.generations.end(),
            [](const Generation& one) { return !one.open() && is_of_ranks(one.cause.kind); }));
    }
    return used;
}

bool unstarted(const Attempt& attempt) {
    return std::all_of(
        attempt.generations.begin(), attempt.generations.end(),
        [](const Generation& one) { return one.released_at == 0 && one.running_at == 0; });
}

bool crash_loop(const Attempt& attempt) {
    if (attempt.generations.size() < static_cast<std::size_t>(kCrashLoop)) {
        return false;
    }
    const Generation& newest = attempt.generations.back();
    if (has_gone_on(*(attempt.generations.end() - kCrashLoop), newest)) {
        return false;
    }
    return std::all_of(
        attempt.generations.end() - kCrashLoop, attempt.generations.end(),
        [&](const Generation& one) {
            const bool failed = is_of_ranks(one.cause.kind) &&
                                trigger_of(one.cause.kind) != RecoveryTrigger::node_failure;
            const bool comparable =
                !ran_long(one) ||
                (one.resumed_from_step >= 0 && one.resumed_from_step == newest.resumed_from_step);
            return !one.open() && failed && comparable &&
                   std::abs(one.step - newest.step) <= kSameStep;
        });
}

std::optional<Cause> reason_to_stop(const Job& job) {
    const Attempt& attempt = *job.attempt();
    const Generation* newest = job.generation();
    const bool live = newest != nullptr && newest->open();
    if (live && newest->first_failure) {
        return first_cause(job, *newest, *newest->first_failure);
    }
    if (attempt.finished_at != 0 && job.cancel_requested_at != 0) {
        return cancelled(job);
    }
    if (attempt.fault) {
        return attempt.fault;
    }
    if (job.cancel_requested_at != 0) {
        return cancelled(job);
    }
    if (live && !job.restart_reason.empty()) {
        Cause cause;
        cause.kind = CauseClass::node_returned;
        cause.message = job.restart_reason;
        return cause;
    }
    if (live && !job.restart_requested_by.empty()) {
        Cause cause;
        cause.kind = CauseClass::restart_requested;
        cause.message = "restart asked for by " + job.restart_requested_by;
        return cause;
    }
    if (!live && usable_nodes(job) < job.spec.resources.least_nodes()) {
        return attempt.last_lost;
    }
    if (newest != nullptr && !live && crash_loop(attempt)) {
        Cause cause = newest->cause;
        cause.message = crash_loop_words(attempt) + "; the last one: " + cause.message;
        return cause;
    }
    return std::nullopt;
}

namespace {

// What the spec asks for.
RecoveryPlan wanted_recovery(const Job& job, const Cause& reason) {
    const Attempt& attempt = *job.attempt();
    const Generation* live = job.live_generation();
    const bool enough = usable_nodes(job) >= job.spec.resources.least_nodes() && !attempt.fault;
    if (reason.kind == CauseClass::restart_requested || reason.kind == CauseClass::node_returned) {
        return {Recovery::generation, ""};
    }
    if (!is_wanted(job.spec.recovery, reason.kind)) {
        return none();
    }
    if (live == nullptr && !attempt.fault && enough && crash_loop(attempt)) {
        return none();  // its cause says so
    }
    if (is_of_ranks(reason.kind) && live != nullptr) {
        const std::int32_t used = restarts_used(job);
        if (used >= job.spec.recovery.max_restarts) {
            return none("restarted " + std::to_string(used) + " times already");
        }
        if (enough) {
            return {Recovery::generation, ""};
        }
    }
    const std::int32_t number = attempt.number - unstarted_before(job) - unwatched_before(job);
    if (number >= job.spec.recovery.max_attempts) {
        return none(number == 1 ? ""
                                : "attempt " + std::to_string(number) + " of " +
                                      std::to_string(job.spec.recovery.max_attempts));
    }
    return {Recovery::attempt, ""};
}

// The scheduler gave nodes and took them away again. What a person handed in is the person's to
// hand in again, and a node that failed the pre-flight is none that was taken away: asked again,
// the scheduler would give it again.
bool taken_away(const Job& job, CauseClass cause) {
    const auto& findings = job.attempt()->preflight;
    return !job.attempt()->allocation.empty() && unstarted(*job.attempt()) &&
           std::none_of(findings.begin(), findings.end(),
                        [](const PreflightFinding& one) { return one.fails; }) &&
           job.spec.submission == Submission::automatic &&
           (cause == CauseClass::node_lost || cause == CauseClass::scheduler ||
            cause == CauseClass::preempted);
}

// Only echoes were heard so far: who is to blame may still be on its way out.
bool culprit_is_awaited(const Job& job, const Waited& waited) {
    const Generation* live = job.live_generation();
    return live != nullptr && live->first_failure && live->first_failure_kind != FailureKind::own &&
           !all_ranks_ended(job) && waited.failed < limits::kCulpritPatience;
}

}  // namespace

RecoveryPlan plan_recovery(const Job& job, const Cause& reason) {
    if (is_final(job.state) || job.attempt()->finished_at != 0 || job.cancel_requested_at != 0) {
        return none();
    }
    if (job.attempt()->unwatched && unwatched_before(job) < kUnwatched) {
        return {Recovery::attempt, ""};
    }
    RecoveryPlan plan = wanted_recovery(job, reason);
    if (plan.kind == Recovery::none && taken_away(job, reason.kind)) {
        const std::int32_t before = unstarted_before(job);
        plan =
            before < kUnstarted
                ? RecoveryPlan{Recovery::attempt, ""}
                : none("the " + std::to_string(before + 1) + "th time before a rank was started");
    }
    return plan;
}

std::optional<Action> answer_to_failure(const Job& job, const Waited& waited) {
    std::optional<Cause> reason = reason_to_stop(job);
    if (!reason) {
        return std::nullopt;
    }
    Action action;
    if (culprit_is_awaited(job, waited)) {
        action.kind = ActionKind::watch;
        return action;
    }
    const RecoveryPlan plan = plan_recovery(job, *reason);
    const bool over = job.live_generation() != nullptr && all_ranks_ended(job);
    action.kind = plan.kind == Recovery::generation ? ActionKind::restart
                  : plan.kind == Recovery::attempt  ? ActionKind::next_attempt
                  : over                            ? ActionKind::conclude
                                                    : ActionKind::stop;
    action.cause = std::move(*reason);
    return action;
}

std::vector<std::string> nodes_to_exclude(const Job& job) {
    std::vector<std::string> out;
    if (!job.spec.recovery.wanted || !job.spec.recovery.exclude_failed_nodes) {
        return out;
    }
    const auto add = [&](const std::string& node) {
        if (!node.empty() && std::find(out.begin(), out.end(), node) == out.end()) {
            out.push_back(node);
        }
    };
    for (const Attempt& attempt : job.attempts) {
        for (const auto& [slot, cause] : attempt.lost) {
            const auto claim = attempt.claims.find(slot);
            add(claim == attempt.claims.end() ? cause.node : claim->second.node);
        }
        for (const Generation& generation : attempt.generations) {
            if (generation.cause.kind == CauseClass::gpu_fault) {
                add(generation.cause.node);
            }
        }
    }
    return out;
}

}  // namespace lockstep
