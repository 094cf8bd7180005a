#include "daemon/control/machine/anomaly_run.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kAnomaliesEvery = std::chrono::seconds{1};

// A loss that is no number ends the generation if the job wants that. Only the loss does: gradients
// may overflow where losses are scaled, and the next step makes up for it.
void note_nonfinite_loss(Draft& draft, const telemetry::Anomaly& found) {
    const Job& job = draft.job();
    const Generation* live = job.live_generation();
    if (job.spec.recovery.on_nonfinite_loss == NonfiniteLoss::warn || found.metric != "loss" ||
        found.rank < 0 || live == nullptr || live->first_failure) {
        return;
    }
    event::FaultSeen fault;
    fault.attempt = job.attempt()->number;
    fault.generation = live->number;
    fault.rank = found.rank;
    if (const auto* claim = job.claim_of_node(found.rank / job.spec.ranks_per_node())) {
        fault.node = claim->node;
    }
    fault.cause_class = CauseClass::nonfinite_loss;
    fault.message = "rank " + std::to_string(found.rank) + " on " + fault.node + ": " +
                    found.message +
                    (found.step >= 0 ? " at step " + std::to_string(found.step) : "");
    fault.at = draft.at.wall;
    draft.add(std::move(fault));
}

}  // namespace

void AnomalyRun::look(Draft& draft, GenerationRun& run, bool last) {
    if (last) {
        run.stats.reset();  // the last reports may be younger
    }
    const auto* series = draft.at.series;
    const telemetry::JobStats* now = run.fresh_stats(draft.at);
    const Generation* live = draft.job().live_generation();
    if (series == nullptr || now == nullptr || live == nullptr || live->running_at == 0) {
        return;
    }
    // A walk over all ranks, and this is called with every round of inputs.
    const auto at = draft.at.steady;
    if (!last && looked_ && at - *looked_ < kAnomaliesEvery) {
        return;
    }
    looked_ = at;
    if (std::exchange(resumed_, false)) {
        watch_.resume(*series);
    }
    const std::size_t from = draft.events.size();
    telemetry::AnomalyWatch::Facts facts;
    facts.now = draft.at.wall_seconds();
    facts.since = static_cast<double>(live->running_at) / 1000.0;
    facts.ranks_per_node = static_cast<std::size_t>(draft.before().spec.ranks_per_node());
    facts.exited = &live->exited;
    for (telemetry::Anomaly& found : watch_.look(*series, *now, facts)) {
        if (!last) {  // else there is nothing left to end
            note_nonfinite_loss(draft, found);
        }
        // Of each kind: stragglers must not hide that the loss is NaN.
        const auto kind = static_cast<std::size_t>(found.kind);
        if (draft.job().anomalies[kind] - run.anomalies_before[kind] >= limits::kAnomalyEvents) {
            continue;
        }
        event::AnomalySeen seen;
        seen.attempt = draft.job().attempt()->number;
        seen.generation = live->number;
        seen.rank = found.rank;
        seen.anomaly = to_string(found.kind);
        seen.step = found.step;
        seen.message = std::move(found.message);
        const auto per_node = static_cast<std::int32_t>(facts.ranks_per_node);
        if (const NodeClaim* claim =
                found.rank < 0 ? nullptr : draft.job().claim_of_node(found.rank / per_node)) {
            seen.node = claim->node;
        }
        draft.add(std::move(seen));
    }
    draft.found_once(from);  // the watch tells each thing once
}

void AnomalyRun::begin(const telemetry::JobSeries* series) {
    if (std::exchange(resumed_, false) && series != nullptr) {
        watch_.resume(*series);
    }
    watch_.restart();
}

}  // namespace lockstep
