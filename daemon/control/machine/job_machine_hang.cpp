// How a hang is noticed, told and, where that is wanted, ended.
#include "daemon/control/machine/evidence.hpp"
#include "daemon/control/machine/hang_words.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
// Evidence first: what the ranks are doing is asked before anything is told or ended.
void JobMachine::look_for_hang(Draft& draft) {
    watch_for_hang(draft);
    const Generation* live = draft.job().live_generation();
    if (!run_.generation.evidence || run_.generation.evidence->kept || live == nullptr ||
        !run_.generation.evidence->is_in(draft.at.steady)) {
        return;
    }
    // Once a rank has ended it is no hang any more, or is ended because of that rank; nor if the
    // ranks went on while they were asked (a checkpoint that took long).
    const auto* series = draft.at.series;
    const bool hangs = run_.generation.evidence->hang && live->exited_count == 0 &&
                       !live->first_failure && run_.generation.hang_watch.still(series);
    const bool starting = run_.generation.evidence->verdict.starting;
    if (starting && !(hangs && waits_at_start(draft.at))) {
        run_.generation.evidence
            .reset();  // it is on its way; without an event nothing is committed that could do it
        return;
    }
    if (!hangs) {
        add_evidence(draft);  // somebody asked, or it ran on; nothing is ended
        draft.after.emplace_back(after::EvidenceUsed{false});
        return;
    }
    event::FaultSeen fault = hang_fault(job_, *run_.generation.evidence, series, draft.at.wall);
    const bool told = live->hang.has_value();
    add_evidence(draft);
    if (!told) {
        draft.add(hang_warning(draft.job(), *run_.generation.evidence, fault));
    }
    // How long a start may take nobody knows: one is told, never ended.
    const bool end = draft.job().spec.recovery.has(RecoveryTrigger::hang) && !starting;
    if (end) {
        draft.add(std::move(fault));
    }
    draft.after.emplace_back(after::EvidenceUsed{end});
}

// Whether the ranks that were just looked at, and have not made a step yet, wait for each other in
// vain: by two looks that show the same. One may fall into the moment before the last rank comes.
bool JobMachine::waits_at_start(const Surroundings& at) {
    const StackVerdict stacks = compare_stacks(run_.generation.evidence->saved);
    return run_.generation.hang_watch.confirmed(waits_to_meet(stacks) ? stacks.words : "",
                                                at.steady);
}

// Also while somebody else has the ranks looked at: who asks again and again would hide a hang.
void JobMachine::watch_for_hang(Draft& draft) {
    const auto* series = draft.at.series;
    const Generation* live = draft.job().live_generation();
    if (live != nullptr && live->hang) {
        hang_is_over(draft);
    }
    if (live == nullptr || live->running_at == 0 || live->exited_count > 0 || live->first_failure ||
        (run_.generation.evidence && run_.generation.evidence->hang)) {
        return;
    }
    const telemetry::JobStats* known = stats(draft.at);
    const double usual = known != nullptr && known->step_seconds ? known->step_seconds->p99 : 0.0;
    const auto* report = series == nullptr
                             ? nullptr
                             : series->report_of(draft.job().attempt()->number, live->number);
    auto verdict = run_.generation.hang_watch.look(
        series, draft.at.steady, hang_limit(draft.job().spec.watch.hang_seconds, usual),
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
            ask_for_evidence(draft, std::move(*verdict), kStartReason, true, true);
        }
        return;
    }
    log::warn("the ranks hang", {{"job", job_.id.value}, {"step", verdict->step}});
    if (!run_.generation.evidence) {
        ask_for_evidence(draft, std::move(*verdict), kHangReason, true, !end);
        return;
    }
    // They are being asked already; what they answer is the hang's evidence.
    run_.generation.evidence->verdict = std::move(*verdict);
    run_.generation.evidence->reason = kHangReason;
    run_.generation.evidence->hang = true;
}

// Told once the ranks make steps again.
void JobMachine::hang_is_over(Draft& draft) {
    const Generation* live = draft.job().live_generation();
    const auto* series = draft.at.series;
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
    draft.add(std::move(over));
}

}  // namespace lockstep
