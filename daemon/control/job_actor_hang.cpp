// How a hang is noticed, told and, where that is wanted, ended.
#include "daemon/control/job_actor.hpp"
#include "daemon/control/machine/evidence.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* kHangReason = "no rank has made a step";
constexpr const char* kStartReason = "no rank has made its first step";

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

// Evidence first: what the ranks are doing is asked before anything is told or ended.
void JobActor::look_for_hang(Draft& draft) {
    watch_for_hang(draft);
    const Generation* live = draft.job().live_generation();
    if (!run_.generation.evidence || run_.generation.evidence->kept || live == nullptr ||
        !evidence_is_in()) {
        return;
    }
    // Once a rank has ended it is no hang any more, or is ended because of that rank; nor if the
    // ranks went on while they were asked (a checkpoint that took long).
    const auto* series = context_.series.find(job_.id.value);
    const bool hangs = run_.generation.evidence->hang && live->exited_count == 0 &&
                       !live->first_failure && run_.generation.hang_watch.still(series);
    const bool starting = run_.generation.evidence->verdict.starting;
    if (starting && !(hangs && waits_at_start())) {
        run_.generation.evidence
            .reset();  // it is on its way; without an event nothing is committed that could do it
        return;
    }
    if (!hangs) {
        add_evidence(draft);  // somebody asked, or it ran on; nothing is ended
        draft.effects.push_back([this] { run_.generation.evidence.reset(); });
        return;
    }
    event::FaultSeen fault = hang_fault();
    const bool told = live->hang.has_value();
    add_evidence(draft);
    if (!told) {
        add(draft, hang_warning(draft.job(), fault));
    }
    // How long a start may take nobody knows: one is told, never ended.
    const bool end = draft.job().spec.recovery.has(RecoveryTrigger::hang) && !starting;
    if (end) {
        add(draft, std::move(fault));
    }
    draft.effects.push_back([this, end] {
        if (end && run_.generation.evidence) {
            run_.generation.evidence->kept = true;
        } else {
            run_.generation.evidence.reset();
        }
    });
}

// Whether the ranks that were just looked at, and have not made a step yet, wait for each other in
// vain: by two looks that show the same. One may fall into the moment before the last rank comes.
bool JobActor::waits_at_start() {
    const StackVerdict stacks = compare_stacks(run_.generation.evidence->saved);
    return run_.generation.hang_watch.confirmed(waits_to_meet(stacks) ? stacks.words : "",
                                                context_.clock.steady());
}

// Also while somebody else has the ranks looked at: who asks again and again would hide a hang.
void JobActor::watch_for_hang(Draft& draft) {
    const auto* series = context_.series.find(job_.id.value);
    const Generation* live = draft.job().live_generation();
    if (live != nullptr && live->hang) {
        hang_is_over(draft);
    }
    if (live == nullptr || live->running_at == 0 || live->exited_count > 0 || live->first_failure ||
        (run_.generation.evidence && run_.generation.evidence->hang)) {
        return;
    }
    const telemetry::JobStats* known = stats();
    const double usual = known != nullptr && known->step_seconds ? known->step_seconds->p99 : 0.0;
    const auto* report = series == nullptr
                             ? nullptr
                             : series->report_of(draft.job().attempt()->number, live->number);
    auto verdict = run_.generation.hang_watch.look(
        series, context_.clock.steady(), hang_limit(draft.job().spec.watch.hang_seconds, usual),
        report != nullptr && report->last_step >= 0);
    const auto kind = static_cast<std::size_t>(AnomalyKind::hang);
    if (live->hang) {
        return;  // told already, and not to be ended: or it would have been
    }
    const bool end = draft.job().spec.recovery.has(RecoveryTrigger::hang);
    const bool often = draft.job().anomalies[kind] - run_.generation.anomalies_before[kind] >=
                       limits::kAnomalyEvents;
    if (!verdict || (often && !end)) {
        return;
    }
    if (verdict->starting) {
        if (!run_.generation
                 .evidence) {  // else what is looked at is asked for, and told to somebody
            ask_for_evidence(std::move(*verdict), kStartReason, true, true);
        }
        return;
    }
    log::warn("the ranks hang", {{"job", job_.id.value}, {"step", verdict->step}});
    if (!run_.generation.evidence) {
        ask_for_evidence(std::move(*verdict), kHangReason, true, !end);
        return;
    }
    // They are being asked already; what they answer is the hang's evidence.
    run_.generation.evidence->verdict = std::move(*verdict);
    run_.generation.evidence->reason = kHangReason;
    run_.generation.evidence->hang = true;
}

// Told once the ranks make steps again.
void JobActor::hang_is_over(Draft& draft) {
    const Generation* live = draft.job().live_generation();
    const auto* series = context_.series.find(job_.id.value);
    if (series == nullptr || !run_.generation.hang_watch.moved(series)) {
        return;
    }
    event::AnomalySeen over;
    over.attempt = draft.job().attempt()->number;
    over.generation = live->number;
    over.anomaly = to_string(AnomalyKind::hang);
    over.step = HangWatch::standing(*series).step;
    over.message = "the ranks make steps again";
    over.over = true;
    add(draft, std::move(over));
}

event::AnomalySeen JobActor::hang_warning(const Job& job, const event::FaultSeen& fault) const {
    event::AnomalySeen out;
    out.attempt = fault.attempt;
    out.generation = fault.generation;
    out.rank = fault.rank;
    out.node = fault.node;
    out.anomaly = to_string(AnomalyKind::hang);
    out.step = run_.generation.evidence->verdict.step;
    out.message = fault.message;
    out.since =
        fault.at - std::chrono::milliseconds{run_.generation.evidence->verdict.silence}.count();
    if (run_.generation.evidence->verdict.starting) {
        out.message += out.message.ends_with('?') ? " The job goes on" : ". The job goes on";
    } else if (!job.spec.recovery.has(RecoveryTrigger::hang)) {
        out.message += ". The job goes on: recovery for hang is off";
    }
    return out;
}

// Who is to blame, in words: one whose process does not run; the rank that is not where the others
// wait, by their Python stacks; the first that is behind.
event::FaultSeen JobActor::hang_fault() const {
    const HangWatch::Verdict& verdict = run_.generation.evidence->verdict;
    const StackVerdict stacks = compare_stacks(run_.generation.evidence->saved);
    const auto state_of = [&](std::int32_t rank) {
        const auto found = std::find_if(
            run_.generation.evidence->ranks.begin(), run_.generation.evidence->ranks.end(),
            [&](const wire::RankState& one) { return one.rank == rank; });
        return found == run_.generation.evidence->ranks.end() ? std::string{} : found->state;
    };
    const auto first_with = [&](const auto& matches) {
        std::int32_t found = -1;
        for (const wire::RankState& one : run_.generation.evidence->ranks) {
            found = matches(one.state) && (found < 0 || one.rank < found) ? one.rank : found;
        }
        return found;
    };
    event::FaultSeen fault;
    fault.attempt = job_.attempt()->number;
    fault.generation = job_.live_generation()->number;
    fault.cause_class = to_string(CauseClass::hang);
    fault.at = context_.clock.wall();
    fault.message = std::string{verdict.starting ? kStartReason : kHangReason} + " for " +
                    std::to_string(verdict.silence.count()) + " s";
    fault.rank = first_with(is_stopped);
    const bool by_stack = fault.rank < 0 && !stacks.culprits.empty();
    if (by_stack) {
        fault.rank = stacks.culprits.front();
    } else if (fault.rank < 0 && !verdict.behind.empty()) {
        fault.rank = verdict.behind.front();
    } else if (fault.rank < 0 && verdict.starting) {
        fault.rank = first_without_stack(stacks, job_.world_size());
    } else if (fault.rank < 0) {
        fault.rank =
            first_with([](const std::string& state) { return state != "S" && state != "R"; });
    }
    if (fault.rank < 0 || fault.rank >= job_.world_size()) {
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
    if (const NodeClaim* claim = job_.claim_of_node(fault.rank / job_.spec.ranks_per_node())) {
        fault.node = claim->node;
    }
    if (by_stack) {
        fault.message +=
            "; " + stacks.words + "; rank " + std::to_string(fault.rank) + " is on " + fault.node;
        return fault;
    }
    fault.message += "; rank " + std::to_string(fault.rank) + " on " + fault.node;
    const bool behind =
        std::binary_search(verdict.behind.begin(), verdict.behind.end(), fault.rank);
    if (const auto* series = context_.series.find(job_.id.value); series != nullptr && behind) {
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
