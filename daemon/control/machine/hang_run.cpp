#include "daemon/control/machine/hang_run.hpp"

#include "daemon/control/machine/desync.hpp"
#include "daemon/control/machine/hang_words.hpp"
#include "daemon/control/machine/rank_findings.hpp"
#include "daemon/control/machine/rank_owner.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/recovery.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// From so many steps on their 99th percentile over time counts.
constexpr std::size_t kStepsKnown = 20;
// Crash loops end after kCrashLoop generations: 1, 3 and 9 times the limit.
constexpr int kLongerAgain = 3;

void add_evidence(Draft& draft, const EvidenceRun& evidence) {
    const auto* series = draft.at.series;
    const std::int32_t world = draft.before().world_size();
    std::vector<RankFinding> findings(static_cast<std::size_t>(world));
    for (std::int32_t rank = 0; rank < world; ++rank) {
        RankFinding& one = findings[static_cast<std::size_t>(rank)];
        one.rank = rank;
        if (const NodeClaim* claim =
                draft.before().claim_of_node(rank / draft.before().spec.ranks_per_node())) {
            one.node = claim->node;
        }
        if (series != nullptr && static_cast<std::size_t>(rank) < series->world_size()) {
            one.step = series->rank(static_cast<std::size_t>(rank)).last_step();
        }
    }
    const auto at = [&](std::int32_t rank) {
        return rank < 0 || rank >= world ? nullptr : &findings[static_cast<std::size_t>(rank)];
    };
    for (const std::int32_t rank : evidence.verdict.behind) {
        if (RankFinding* one = at(rank)) {
            one->behind = true;
        }
    }
    if (const auto& desync = draft.before().live_generation()->desync) {
        if (RankFinding* one = at(desync->rank)) {
            one->behind = true;
        }
    }
    for (const wire::RankState& state : evidence.ranks) {
        if (RankFinding* one = at(state.rank)) {
            one->process = state;
            one->told = true;
        }
    }
    for (const wire::RankEvidence& saved : evidence.saved) {
        if (RankFinding* one = at(saved.rank)) {
            one->evidence = saved;
            one->saved = true;
        }
    }
    event::EvidenceTaken taken;
    taken.attempt = draft.before().attempt()->number;
    taken.generation = draft.before().live_generation()->number;
    taken.reason = evidence.reason;
    taken.message = findings_words(findings);
    taken.step = evidence.verdict.step;
    taken.ranks = findings_json(findings, lagging_first(findings));
    log::info("evidence", {{"job", draft.before().id.value}, {"what", taken.message}});
    draft.add(std::move(taken));
}

// Whether the ranks that were just looked at, and have not made a step yet, wait for each other in
// vain: by two looks that show the same. One may fall into the moment before the last rank comes.
bool waits_at_start(const EvidenceRun& evidence, HangWatch& watch, const Surroundings& at) {
    const StackVerdict stacks = compare_stacks(evidence.saved);
    return watch.confirmed(waits_to_meet(stacks) ? stacks.words : "", at.steady);
}

// Told once the ranks make steps again.
void hang_is_over(Draft& draft, const GenerationRun& run) {
    const Generation* live = draft.job().live_generation();
    const auto* series = draft.at.series;
    if (series == nullptr || !run.hang_watch.moved(series)) {
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

// Of this generation; nothing before a rank has reported a step in it.
const GenerationReport* report_of(const Draft& draft, const Generation& live) {
    const auto* report =
        draft.at.series == nullptr
            ? nullptr
            : draft.at.series->report_of(draft.job().attempt()->number, live.number);
    return report != nullptr && report->last_step >= 0 ? report : nullptr;
}

// How many generations before this one were ended as a hang at the step at which this one stands:
// the script may do something there that takes its time, and has never been let finish it.
int hangs_here_before(const Attempt& attempt, const GenerationReport& report) {
    int count = 0;
    for (auto one = attempt.generations.rbegin(); one != attempt.generations.rend(); ++one) {
        if (one->open()) {
            continue;
        }
        if (one->cause.kind != CauseClass::hang ||
            std::abs(one->step - report.last_step) > kSameStep) {
            break;
        }
        ++count;
    }
    return count;
}

HangWatch::Limit limit_of(const Draft& draft, GenerationRun& run, const Generation& live) {
    const std::int32_t said = draft.job().spec.watch.hang_seconds;
    const GenerationReport* report = report_of(draft, live);
    if (report == nullptr) {
        return hang_limit(said, 0);  // how long steps took before tells nothing of a start
    }
    const telemetry::JobStats* known = run.fresh_stats(draft.at);
    double usual = known != nullptr && known->step_seconds ? known->step_seconds->p99 : 0.0;
    if (draft.at.series != nullptr && draft.at.series->step_times().steps() >= kStepsKnown) {
        usual = std::max(usual, draft.at.series->step_times().p99());
    }
    const UnixMillis first = std::max<UnixMillis>(0, report->first_at - live.running_at);
    HangWatch::Limit limit = hang_limit(said, usual, std::chrono::milliseconds{first});
    for (int before = hangs_here_before(*draft.job().attempt(), *report); limit.grows && before > 0;
         --before) {
        limit.seconds *= kLongerAgain;
    }
    return limit;
}

// A rank has left with 0, and the others make no step any more: most often they wait for it in a
// collective, for as long as its timeout is. It is no hang to be ended, for they may as well do
// what comes after the last step; it is told, once.
void warn_of_left(Draft& draft, GenerationRun& run, const event::RankExited& left) {
    const Job& job = draft.job();
    const Generation& live = *job.live_generation();
    HangWatch::Limit limit = limit_of(draft, run, live);
    limit.spares = false;  // what the one that has left said last counts no more; see below
    const auto verdict = run.hang_watch.look(draft.at.series, draft.at.steady, limit,
                                             report_of(draft, live) != nullptr);
    if (!verdict || verdict->starting) {
        return;
    }
    const auto world = static_cast<std::int32_t>(live.exited.size());
    for (std::int32_t rank = 0; rank < world; ++rank) {
        if (!live.exited[static_cast<std::size_t>(rank)] && is_busy(draft.at.series, rank)) {
            return;
        }
    }
    const std::string who = (left.launcher ? "the process that starts the ranks of "
                                           : "rank " + std::to_string(left.rank) + " on ") +
                            left.node + " left with exit 0" +
                            (left.step < 0 ? "" : " at step " + std::to_string(left.step));
    const std::string which =
        who + (live.number > 1 ? " in generation " + std::to_string(live.number) : "") + "; ";
    if (std::any_of(job.warnings.begin(), job.warnings.end(),
                    [&](const std::string& known) { return known.starts_with(which); })) {
        return;
    }
    const std::int32_t others = world - live.exited_count;
    draft.warn(which + "no rank has made a step for " + std::to_string(verdict->silence.count()) +
                   " s, and " + std::to_string(others) +
                   (others == 1 ? " other may wait" : " others may wait") + " for it",
               left.node);
}

// Also while somebody else has the ranks looked at: who asks again and again would hide a hang.
void watch_for_hang(Draft& draft, AttemptRun& run) {
    const Generation* live = draft.job().live_generation();
    // Like a hang that was told it is over once steps are made; most looks come too soon after the
    // one before to see anything.
    if (run.generation.hang_untold &&
        (live == nullptr || live->exited_count > 0 || live->first_failure ||
         !run.generation.hang_watch.still(draft.at.series))) {
        run.generation.hang_untold = false;
    }
    if (live != nullptr && live->hang) {
        hang_is_over(draft, run.generation);
    }
    desync_outlived(draft, run.generation);
    live = draft.job().live_generation();
    if (live != nullptr && live->running_at != 0 && !live->first_failure && live->first_left &&
        live->stopped.empty() && !all_ranks_ended(draft.job()) && !work_done(draft.job())) {
        warn_of_left(draft, run.generation, *live->first_left);
        return;
    }
    if (live == nullptr || live->running_at == 0 || live->exited_count > 0 || live->first_failure ||
        (run.generation.evidence && run.generation.evidence->hang)) {
        return;
    }
    auto verdict = run.generation.hang_watch.look(draft.at.series, draft.at.steady,
                                                  limit_of(draft, run.generation, *live),
                                                  report_of(draft, *live) != nullptr);
    const auto kind = static_cast<std::size_t>(AnomalyKind::hang);
    if (live->hang) {
        return;  // told already, and not to be ended: or it would have been
    }
    const bool end = draft.job().spec.recovery.has(RecoveryTrigger::hang);
    const bool often = draft.job().anomalies[kind] - run.generation.anomalies_before[kind] >=
                       limits::kAnomalyEvents;
    if (!verdict || (often && !end)) {
        run.generation.hang_untold = run.generation.hang_untold || (verdict && !verdict->starting);
        return;
    }
    if (verdict->starting) {
        if (!run.generation
                 .evidence) {  // else what is looked at is asked for, and told to somebody
            ask_for_evidence(draft, run, std::move(*verdict), kStartReason, true, true);
        }
        return;
    }
    log::warn("the ranks hang", {{"job", draft.before().id.value}, {"step", verdict->step}});
    if (!run.generation.evidence) {
        ask_for_evidence(draft, run, std::move(*verdict), kHangReason, true, !end);
        return;
    }
    // They are being asked already; what they answer is the hang's evidence.
    run.generation.evidence->verdict = std::move(*verdict);
    run.generation.evidence->reason = kHangReason;
    run.generation.evidence->hang = true;
}

}  // namespace

// EXAMINE to every node of the live generation.
void ask_for_evidence(Draft& draft, AttemptRun& run, HangWatch::Verdict verdict, std::string reason,
                      bool hang, bool gentle) {
    const Generation& live = *draft.before().live_generation();
    const std::int32_t per_node = draft.before().spec.ranks_per_node();
    run.generation.evidence.emplace();
    run.generation.evidence->verdict = std::move(verdict);
    run.generation.evidence->hang = hang;
    run.generation.evidence->reason = std::move(reason);
    run.generation.evidence->since = draft.at.steady;
    for (std::int32_t node = 0; node < live.nodes; ++node) {
        const std::int32_t slot = live.slot_of(node);
        const auto link = run.links.find(slot);
        if (link == run.links.end() || !run.rendezvous.is_member(slot)) {
            continue;
        }
        run.generation.evidence->awaited.insert(slot);
        run.generation.evidence->unsaved.insert(slot);
        wire::Examine examine;
        examine.generation = live.number;
        examine.reason = run.generation.evidence->reason;
        examine.gentle = gentle;
        examine.first =
            local_ranks(run.generation.evidence->verdict.behind, node * per_node, per_node);
        draft.at_once.send(link->second, examine);
    }
}

void examined(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Examined& examined) {
    if (run.generation.evidence && is_current(draft.before(), *link, examined.generation) &&
        examined.ranks.size() <= static_cast<std::size_t>(draft.before().spec.ranks_per_node()) &&
        run.generation.evidence->awaited.erase(link->node_rank) == 1) {
        const auto own = of_own_ranks(draft.before(), *link, examined.generation, examined.ranks);
        run.generation.evidence->ranks.insert(run.generation.evidence->ranks.end(), own.begin(),
                                              own.end());
        draft.at_once.add(effect::LookAgain{});
    }
}

void evidence_saved(Draft& draft, AttemptRun& run, const AgentPtr& link,
                    const wire::EvidenceSaved& saved) {
    if (run.generation.evidence && is_current(draft.before(), *link, saved.generation) &&
        saved.ranks.size() <= static_cast<std::size_t>(draft.before().spec.ranks_per_node()) &&
        run.generation.evidence->unsaved.erase(link->node_rank) == 1) {
        for (const wire::RankEvidence& one :
             of_own_ranks(draft.before(), *link, saved.generation, saved.ranks)) {
            run.generation.evidence->saved.push_back(cleaned(one));
        }
        draft.at_once.add(effect::LookAgain{});
    }
}

// Evidence first: what the ranks are doing is asked before anything is told or ended.
void look_for_hang(Draft& draft, AttemptRun& run) {
    watch_for_hang(draft, run);
    const Generation* live = draft.job().live_generation();
    if (!run.generation.evidence || run.generation.evidence->kept || live == nullptr ||
        !run.generation.evidence->is_in(draft.at.steady)) {
        return;
    }
    // Once a rank has ended it is no hang any more, or is ended because of that rank; nor if the
    // ranks went on while they were asked (a checkpoint that took long).
    const auto* series = draft.at.series;
    const bool hangs = run.generation.evidence->hang && live->exited_count == 0 &&
                       !live->first_failure && run.generation.hang_watch.still(series);
    const bool starting = run.generation.evidence->verdict.starting;
    if (starting &&
        !(hangs && waits_at_start(*run.generation.evidence, run.generation.hang_watch, draft.at))) {
        // It is on its way; without an event nothing is committed that could do it.
        run.generation.evidence.reset();
        return;
    }
    if (!hangs) {
        // Somebody asked, or it ran on; nothing is ended.
        add_evidence(draft, *run.generation.evidence);
        draft.after.emplace_back(after::EvidenceUsed{false});
        return;
    }
    event::FaultSeen fault =
        hang_fault(draft.before(), *run.generation.evidence, series, draft.at.wall);
    const bool told = live->hang.has_value();
    add_evidence(draft, *run.generation.evidence);
    if (!told) {
        draft.add(hang_warning(draft.job(), *run.generation.evidence, fault));
    }
    // How long a start may take nobody knows: one is told, never ended.
    const bool end = draft.job().spec.recovery.has(RecoveryTrigger::hang) && !starting;
    if (end) {
        draft.add(std::move(fault));
    }
    draft.after.emplace_back(after::EvidenceUsed{end});
}

void evidence_used(AttemptRun& run, bool acted_on) {
    std::optional<EvidenceRun>& evidence = run.generation.evidence;
    if (acted_on && evidence) {
        evidence->kept = true;
    } else {
        evidence.reset();
    }
}

}  // namespace lockstep
