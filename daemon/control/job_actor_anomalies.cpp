// What is wrong with a run that goes on, told as events.
#include "daemon/control/job_actor.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kAnomaliesEvery = std::chrono::seconds{1};

}  // namespace

void JobActor::look_for_anomalies(Draft& draft, bool last) {
    if (last) {
        run_.generation.stats.reset();  // the last reports may be younger
    }
    const auto* series = context_.series.find(job_.id.value);
    const telemetry::JobStats* now = stats();
    const Generation* live = draft.job().live_generation();
    if (series == nullptr || now == nullptr || live == nullptr || live->running_at == 0) {
        return;
    }
    // A walk over all ranks, and this is called with every round of inputs.
    const auto at = context_.clock.steady();
    if (!last && anomalies_at_ && at - *anomalies_at_ < kAnomaliesEvery) {
        return;
    }
    anomalies_at_ = at;
    if (std::exchange(resumed_, false)) {
        anomaly_watch_.resume(*series);
    }
    telemetry::AnomalyWatch::Facts facts;
    facts.now = context_.now_seconds();
    facts.since = static_cast<double>(live->running_at) / 1000.0;
    facts.ranks_per_node = static_cast<std::size_t>(job_.spec.ranks_per_node());
    facts.exited = &live->exited;
    for (telemetry::Anomaly& found : anomaly_watch_.look(*series, *now, facts)) {
        if (!last) {  // else there is nothing left to end
            note_nonfinite_loss(draft, found);
        }
        // Of each kind: stragglers must not hide that the loss is NaN.
        const auto kind = static_cast<std::size_t>(found.kind);
        if (draft.job().anomalies[kind] - run_.generation.anomalies_before[kind] >=
            limits::kAnomalyEvents) {
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
        add(draft, std::move(seen));
    }
}

// A loss that is no number ends the generation if the job wants that. Only the loss does: gradients
// may overflow where losses are scaled, and the next step makes up for it.
void JobActor::note_nonfinite_loss(Draft& draft, const telemetry::Anomaly& found) {
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
    fault.cause_class = to_string(CauseClass::nonfinite_loss);
    fault.message = "rank " + std::to_string(found.rank) + " on " + fault.node + ": " +
                    found.message +
                    (found.step >= 0 ? " at step " + std::to_string(found.step) : "");
    fault.at = context_.clock.wall();
    add(draft, std::move(fault));
}

void JobActor::describe(telemetry::JobMetricsView& view) const {
    view.straggler_ranks = anomaly_watch_.straggler_ranks();
    view.loss_zscore = anomaly_watch_.loss_z();
    view.grad_norm_zscore = anomaly_watch_.grad_norm_z();
    const Attempt* attempt = job_.attempt();
    if (attempt == nullptr || attempt->placed_at == 0 || attempt->finished_at != 0) {
        return;
    }
    const Generation* newest = job_.generation();
    view.generation = newest == nullptr ? 0 : newest->number;
    std::int64_t nodes = 0;
    for (std::int32_t slot = 0; slot < job_.spec.resources.allocated_nodes(); ++slot) {
        nodes += run_.rendezvous.phase(slot) >= Rendezvous::Phase::joined ? 1 : 0;
    }
    const bool met = newest != nullptr && newest->open() && newest->running_at != 0;
    view.ranks_joined =
        met ? job_.world_size()
            : std::min<std::int64_t>(nodes * job_.spec.ranks_per_node(), job_.world_size());
    if (!met) {
        const UnixMillis since = newest == nullptr ? attempt->placed_at
                                 : newest->open()  ? newest->started_at
                                                   : newest->finished_at;
        view.rendezvous_age =
            static_cast<double>(std::max<UnixMillis>(context_.clock.wall() - since, 0)) / 1000.0;
    }
}

}  // namespace lockstep
