#include "daemon/control/queries/job_metrics.hpp"

#include "job/model/spans.hpp"

namespace lockstep {
namespace {

// What was started again, by why it had ended.
void count_restarts(const Job& job, std::array<std::uint64_t, kCauseClasses>& out) {
    for (const Attempt& attempt : job.attempts) {
        for (const Generation& one : attempt.generations) {
            out[static_cast<std::size_t>(one.cause.kind)] +=
                &one != &attempt.generations.back() ? 1 : 0;
        }
        out[static_cast<std::size_t>(attempt.cause.kind)] +=
            &attempt != &job.attempts.back() ? 1 : 0;
    }
}

}  // namespace

telemetry::JobMetricsView metrics_view(const Job& job, const Scheduler& scheduler,
                                       const telemetry::JobSeries* series,
                                       std::vector<telemetry::RankMetricsView>& ranks,
                                       UnixMillis now) {
    telemetry::JobMetricsView view;
    view.job_id = job.id.value;
    view.name = job.spec.name;
    view.user = job.user;
    view.framework = to_string(job.spec.framework);
    view.account = job.spec.slurm.account;
    view.partition = job.spec.slurm.partition;
    view.qos = job.spec.slurm.qos;
    view.state = job.state;
    view.ranks_expected = job.world_size();
    std::span<const GenerationReport> reports;
    if (series != nullptr) {
        reports = series->generations();
    }
    const JobTime time = job_time(job, reports, now);
    view.span_seconds = time.seconds;
    view.ettr = time.ettr;
    view.lost_steps = time.lost_steps;
    count_restarts(job, view.restarts);
    view.anomalies = job.anomalies;
    view.series = series;
    if (job.checkpoint_at != 0) {
        view.last_checkpoint_time = static_cast<double>(job.checkpoint_at) / 1000.0;
    }
    const Attempt* attempt = job.attempt();
    if (attempt != nullptr) {
        if (const auto label = scheduler.cluster_label(attempt->scheduler_id)) {
            view.cluster_label = label->name;
            view.cluster_job = label->value;
        }
    }
    view.waits = attempt == nullptr || attempt->placed_at == 0 || attempt->finished_at != 0;
    if (view.waits) {
        return view;
    }
    view.nodes = static_cast<std::int32_t>(attempt->claims.size());
    const std::int32_t per_node = job.spec.ranks_per_node();
    ranks.clear();
    if (attempt->generations.empty()) {
        return view;
    }
    if (job.spec.resources.is_elastic()) {
        view.nodes = job.nodes();
        view.nodes_requested = job.spec.resources.nodes;
    }
    for (std::int32_t node = 0; node < job.nodes(); ++node) {
        const NodeClaim* claim = job.claim_of_node(node);
        for (std::int32_t local = 0; claim != nullptr && local < per_node; ++local) {
            ranks.push_back({node * per_node + local, local, claim->node});
        }
    }
    view.ranks = ranks;
    return view;
}

}  // namespace lockstep
