#include "daemon/control/machine/hang_words.hpp"

#include "daemon/control/machine/rank_findings.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::string state_words(const std::string& state) {
    if (state == "T" || state == "t") {
        return "its process is stopped";
    }
    if (state == "D") {
        return "its process waits for the disk or a driver and cannot be ended";
    }
    if (state == "Z" || state == "X") {
        return "its process is dead";
    }
    return state == "R" ? "its process is computing" : "its process sleeps";
}

// The first rank of `world` that showed no Python stack while others wait for it; -1: all did.
std::int32_t first_without_stack(const StackVerdict& stacks, std::int32_t world) {
    std::vector<bool> shown(static_cast<std::size_t>(world), false);
    for (const StackGroup& group : stacks.groups) {
        for (const std::int32_t rank : group.ranks) {
            if (rank >= 0 && rank < world) {
                shown[static_cast<std::size_t>(rank)] = true;
            }
        }
    }
    const auto found = std::find(shown.begin(), shown.end(), false);
    return found == shown.end() ? -1 : static_cast<std::int32_t>(found - shown.begin());
}

// No process that trains is in such a state.
bool is_stopped(const std::string& state) {
    return state == "T" || state == "t" || state == "Z" || state == "X";
}

}  // namespace

event::AnomalySeen hang_warning(const Job& job, const EvidenceRun& evidence,
                                const event::FaultSeen& fault) {
    event::AnomalySeen out;
    out.attempt = fault.attempt;
    out.generation = fault.generation;
    out.rank = fault.rank;
    out.node = fault.node;
    out.anomaly = to_string(AnomalyKind::hang);
    out.step = evidence.verdict.step;
    out.message = fault.message;
    out.since = fault.at - std::chrono::milliseconds{evidence.verdict.silence}.count();
    if (evidence.verdict.starting) {
        out.message += out.message.ends_with('?') ? " The job goes on" : ". The job goes on";
    } else if (!job.spec.recovery.has(RecoveryTrigger::hang)) {
        out.message += ". The job goes on: recovery for hang is off";
    }
    return out;
}

// Who is to blame, in words: one whose process does not run; the one that the others wait for in
// NCCL; the rank that is not where the others wait, by their Python stacks; the first that is
// behind.
event::FaultSeen hang_fault(const Job& job, const EvidenceRun& evidence,
                            const telemetry::JobSeries* series, UnixMillis wall) {
    const HangWatch::Verdict& verdict = evidence.verdict;
    const StackVerdict stacks = compare_stacks(evidence.saved);
    const auto state_of = [&](std::int32_t rank) {
        const auto found =
            std::find_if(evidence.ranks.begin(), evidence.ranks.end(),
                         [&](const wire::RankState& one) { return one.rank == rank; });
        return found == evidence.ranks.end() ? std::string{} : found->state;
    };
    const auto first_with = [&](const auto& matches) {
        std::int32_t found = -1;
        for (const wire::RankState& one : evidence.ranks) {
            found = matches(one.state) && (found < 0 || one.rank < found) ? one.rank : found;
        }
        return found;
    };
    event::FaultSeen fault;
    fault.attempt = job.attempt()->number;
    fault.generation = job.live_generation()->number;
    fault.cause_class = CauseClass::hang;
    fault.at = wall;
    fault.message = std::string{verdict.starting ? kStartReason : kHangReason} + " for " +
                    std::to_string(verdict.silence.count()) + " s";
    fault.rank = first_with(is_stopped);
    const auto& desync = job.live_generation()->desync;
    const bool by_nccl = fault.rank < 0 && desync.has_value();
    const bool by_stack = fault.rank < 0 && !by_nccl && !stacks.culprits.empty();
    if (by_nccl) {
        fault.rank = desync->rank;
    } else if (by_stack) {
        fault.rank = stacks.culprits.front();
    } else if (fault.rank < 0 && !verdict.behind.empty()) {
        fault.rank = verdict.behind.front();
    } else if (fault.rank < 0 && verdict.starting) {
        fault.rank = first_without_stack(stacks, job.world_size());
    } else if (fault.rank < 0) {
        fault.rank =
            first_with([](const std::string& state) { return state != "S" && state != "R"; });
    }
    if (fault.rank < 0 || fault.rank >= job.world_size()) {
        fault.rank = -1;
        if (!verdict.starting) {
            fault.message += "; all are at step " + std::to_string(verdict.step);
        }
        fault.message += stacks.words.empty() ? "" : "; " + stacks.words;
        if (verdict.starting) {  // all are there, and do not find each other
            fault.message += ": do all use the same address, port and number of ranks?";
        }
        return fault;
    }
    if (const NodeClaim* claim = job.claim_of_node(fault.rank / job.spec.ranks_per_node())) {
        fault.node = claim->node;
    }
    if (by_nccl) {
        fault.message += "; " + desync->message;
    }
    if (by_stack) {
        fault.message +=
            "; " + stacks.words + "; rank " + std::to_string(fault.rank) + " is on " + fault.node;
        return fault;
    }
    fault.message += "; rank " + std::to_string(fault.rank) + " on " + fault.node;
    const bool behind =
        std::binary_search(verdict.behind.begin(), verdict.behind.end(), fault.rank);
    if (series != nullptr && behind) {
        const auto rank = static_cast<std::size_t>(fault.rank);
        fault.message += " is behind at step " + std::to_string(series->rank(rank).last_step());
    }
    if (const std::string state = state_of(fault.rank); !state.empty()) {
        fault.message += ", " + state_words(state);
    }
    fault.message += stacks.words.empty() ? "" : "; " + stacks.words;
    return fault;
}

}  // namespace lockstep
