#include "daemon/control/machine/verdict.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>

namespace lockstep {
namespace {

// Whether a scheduler can know more of the end of this job than its ranks do.
bool may_have_verdict(const Job& job) {
    return job.attempt() != nullptr && !job.attempt()->allocation.empty() &&
           job.generation() != nullptr && job.cancel_requested_at == 0 && !work_done(job);
}

// A shell that says with its exit code by which signal its command was ended.
bool is_shells_word(int code) {
    constexpr int kBySignal = 128;
    return code == kBySignal + SIGTERM || code == kBySignal + SIGKILL;
}

// A rank that catches SIGTERM and ends with a code of its own does not say that it was sent one; at
// the time limit it probably was.
bool at_time_limit(const Job& job, UnixMillis heard_at) {
    const Attempt& attempt = *job.attempt();
    const std::chrono::milliseconds limit =
        std::chrono::seconds{job.spec.resources.time_limit_seconds};
    UnixMillis still = 0;  // which does not count
    for (const Suspension& one : attempt.suspensions) {
        still += std::max<UnixMillis>(0, (one.to != 0 ? one.to : heard_at) - one.from);
    }
    return limit.count() > 0 && attempt.placed_at != 0 &&
           heard_at >= attempt.placed_at + still + limit.count() -
                           std::chrono::milliseconds{limits::kPlacedLate}.count();
}

// A rank that exits by its own handler of SIGTERM may have been preempted. Where only a preemption
// is recovered from, the scheduler's word decides whether the job goes on, and is waited for.
bool only_preemption_recovers(const Job& job) {
    return job.spec.recovery.has(RecoveryTrigger::preemption) &&
           !job.spec.recovery.has(RecoveryTrigger::rank_failure);
}

// Its ranks' own words, and the scheduler ended the allocation within its grace: what they say came
// of that. A node is taken to be lost only if they name no failure of their own.
bool came_of(const Draft& draft, const Observation& seen) {
    const Job& job = draft.job();
    if (!may_have_verdict(job)) {
        return false;
    }
    const Generation& generation = *job.generation();
    if (const auto& failure = generation.first_failure;
        !failure || failure->kind != CauseClass::rank_exit) {
        return false;
    }
    const bool ends_ranks = seen.cause.kind == CauseClass::time_limit ||
                            seen.cause.kind == CauseClass::preempted ||
                            (seen.cause.kind == CauseClass::node_lost &&
                             generation.first_failure_kind != FailureKind::own);
    return ends_ranks && draft.at.wall - generation.failure_heard_at <=
                             std::chrono::milliseconds{limits::kSchedulersGrace}.count();
}

// Where ranks run on the node that the scheduler itself names as lost; -1: nowhere, or it names
// none.
std::int32_t slot_named(const Job& job, const Observation& seen) {
    const Generation* live = job.live_generation();
    if (seen.cause.kind != CauseClass::node_lost || seen.cause.node.empty() || live == nullptr) {
        return -1;
    }
    for (const auto& [slot, claim] : job.attempt()->claims) {
        if (claim.node == seen.cause.node && !job.attempt()->lost.contains(slot) &&
            live->node_rank_of(slot) >= 0) {
            return slot;
        }
    }
    return -1;
}

}  // namespace

bool wants_verdict(const Job& job) {
    if (!may_have_verdict(job)) {
        return false;
    }
    const Generation& generation = *job.generation();
    if (!generation.first_failure) {
        return !generation.stopped.empty();
    }
    const Cause& first = *generation.first_failure;
    switch (first.kind) {
        case CauseClass::node_lost:
            return true;
        case CauseClass::rank_signal:
            return first.signal == SIGTERM || first.signal == SIGKILL;
        case CauseClass::rank_exit:
            return is_shells_word(first.exit_code) || only_preemption_recovers(job) ||
                   at_time_limit(job, generation.failure_heard_at);
        default:
            return false;
    }
}

namespace {

// The scheduler has forgotten the allocation, and its ranks were ended by a SIGTERM that is none of
// ours: nobody can tell any more whose it was.
void add_doubt(Draft& draft, const AttemptRun& run, const Observation& seen) {
    if (!wants_verdict(draft.before()) || run.stopping || draft.job().generation() == nullptr) {
        return;
    }
    const Generation& generation = *draft.job().generation();
    const auto& first = generation.first_failure;
    if (first && (first->kind != CauseClass::rank_signal || first->signal != SIGTERM)) {
        return;
    }
    const std::int32_t rank = first ? first->rank : *generation.stopped.begin();
    const NodeClaim* claim = draft.job().claim_of_node(rank / draft.before().spec.ranks_per_node());
    event::FaultSeen fault;
    fault.attempt = draft.job().attempt()->number;
    fault.generation = generation.number;
    fault.rank = rank;
    fault.node = claim != nullptr ? claim->node : "";
    fault.cause_class =
        draft.at.doubtful_ends_recover ? CauseClass::rank_signal : CauseClass::scheduler;
    fault.message =
        "rank " + std::to_string(rank) + " on " + fault.node +
        " was ended by SIGTERM that Lockstep did not send: " +
        (seen.lost ? seen.message
                   : "cancelled outside?" + (seen.message.empty() ? "" : " " + seen.message));
    fault.at = first ? generation.first_failure_at - 1 : draft.at.wall;
    draft.add(std::move(fault));
}

}  // namespace

// The scheduler's word goes before what the ranks saw of it: it takes the time of the first failure
// and keeps its rank. A node that it names is lost like one that we found to be: it is counted
// among the node's faults, and the next attempt goes without it.
void add_verdict(Draft& draft, const AttemptRun& run, const Observation& seen) {
    if (seen.kind == Observation::Kind::absent) {
        add_doubt(draft, run, seen);
        return;
    }
    if ((!wants_verdict(draft.before()) && !came_of(draft, seen)) ||
        seen.cause.kind == CauseClass::none || draft.job().generation() == nullptr) {
        return;
    }
    const Generation& generation = *draft.job().generation();
    const std::int32_t lost = slot_named(draft.job(), seen);
    if (lost < 0 && generation.first_failure && generation.first_failure->kind == seen.cause.kind) {
        if (!seen.cause.node.empty() && generation.first_failure->node == seen.cause.node) {
            return;  // word for word
        }
        // It is taken already. But of a node that was lost: the others may be ended with it, and
        // one of those may have been noticed first.
        const auto silent = seen.cause.kind == CauseClass::node_lost
                                ? run.longest_silent(*draft.job().attempt(), draft.at.steady)
                                : std::optional<std::int32_t>{};
        const auto sign = run.last_sign(*draft.job().attempt(), generation.first_failure->node);
        if (!silent || !sign || *run.heard(*silent) >= *sign) {
            return;
        }
    }
    event::FaultSeen fault;
    fault.attempt = draft.job().attempt()->number;
    fault.generation = generation.number;
    fault.cause_class = seen.cause.kind;
    fault.slot = lost;
    fault.message = seen.cause.message;
    fault.node = seen.cause.node;
    fault.at = draft.at.wall;
    if (generation.first_failure) {
        fault.at = generation.first_failure_at - 1;
        // The first rank that it killed need not be where the node was lost.
        const bool of_one = draft.before().spec.resources.allocated_nodes() == 1 ||
                            seen.cause.kind != CauseClass::node_lost;
        if (seen.cause.kind == CauseClass::oom || (fault.node.empty() && of_one)) {
            fault.rank = generation.first_failure->rank;
            fault.node = generation.first_failure->node;
        }
    }
    if (seen.cause.kind == CauseClass::node_lost && fault.node.empty()) {
        if (const auto slot = run.longest_silent(*draft.job().attempt(), draft.at.steady)) {
            fault.node = draft.job().attempt()->claims.at(*slot).node;
            const auto silence = std::chrono::duration_cast<std::chrono::seconds>(
                draft.at.steady - *run.heard(*slot));
            fault.message += ": " + fault.node + ", its agent has not been heard for " +
                             std::to_string(silence.count()) + " s";
        }
    }
    if (draft.add(std::move(fault)) && lost >= 0) {
        draft.give_up(lost);
    }
}

// The allocation is over for the scheduler, and agents are heard all the same. They go within its
// grace as a rule. One that stays cannot be ended by it: a node whose daemon is gone has failed for
// the scheduler (NODE_FAIL), and its ranks go on.
void look_at_outlived(Draft& draft, AttemptRun& run, const Observation& seen) {
    const auto now = draft.at.steady;
    if (run.links.empty() || draft.job().live_generation() == nullptr) {
        run.outlived_since.reset();
        return;
    }
    if (!run.outlived_since) {
        run.outlived_since = now;
    }
    const bool node_failed = seen.cause.kind == CauseClass::node_lost;
    if (now - *run.outlived_since < (node_failed ? limits::kAgentSilence : limits::kAgentLost)) {
        return;
    }
    const std::string& how = seen.cause.message.empty() ? seen.message : seen.cause.message;
    if (node_failed && draft.at.keep_on_node_fail) {
        draft.warn(how + "; its ranks are heard and go on, but " +
                   std::string{draft.at.scheduler_title} +
                   " counts the nodes as its own again and may give them to other jobs "
                   "(--on-slurm-node-fail)");
        return;
    }
    event::FaultSeen fault;
    fault.attempt = draft.job().attempt()->number;
    fault.generation = draft.job().live_generation()->number;
    fault.cause_class =
        seen.cause.kind == CauseClass::none ? CauseClass::scheduler : seen.cause.kind;
    fault.message = how + "; its ranks were still there and are ended";
    fault.at = draft.at.wall;
    draft.add(std::move(fault));
}

}  // namespace lockstep
