#include "daemon/control/job_metrics.hpp"

#include <algorithm>

namespace lockstep {
namespace {

double seconds_between(UnixMillis from, UnixMillis to) {
    return from == 0 || to <= from ? 0.0 : static_cast<double>(to - from) / 1000.0;
}

struct Reports {
    UnixMillis first = 0;
    UnixMillis last = 0;
};

// First and newest report of any rank, milliseconds; zeros if there is none.
Reports reports_of(const telemetry::JobSeries* series) {
    Reports out;
    if (series == nullptr) {
        return out;
    }
    for (std::size_t rank = 0; rank < series->world_size(); ++rank) {
        const auto& one = series->rank(rank);
        if (one.empty() || one.rows() == 0) {
            continue;
        }
        const auto first = static_cast<UnixMillis>(one.time(0) * 1000.0);
        const auto last = static_cast<UnixMillis>(one.last_time() * 1000.0);
        out.first = out.first == 0 ? first : std::min(out.first, first);
        out.last = std::max(out.last, last);
    }
    return out;
}

}  // namespace

std::array<double, telemetry::kPhases> phase_seconds(const Job& job,
                                                     const telemetry::JobSeries* series,
                                                     UnixMillis now) {
    std::array<double, telemetry::kPhases> out{};
    const auto at = [&](telemetry::Phase phase) -> double& {
        return out[static_cast<std::size_t>(phase)];
    };
    const UnixMillis end = job.finished_at != 0 ? job.finished_at : now;
    const Attempt* attempt = job.attempt();
    const UnixMillis placed = attempt != nullptr ? attempt->placed_at : 0;
    at(telemetry::Phase::queue) = seconds_between(job.submitted_at, placed != 0 ? placed : end);
    if (placed == 0) {
        return out;
    }
    const Generation* generation = job.generation();
    const UnixMillis claimed = generation != nullptr ? attempt->claimed_at : 0;
    at(telemetry::Phase::launch) = seconds_between(placed, claimed != 0 ? claimed : end);
    if (claimed == 0) {
        return out;
    }
    const UnixMillis running = generation->running_at;
    at(telemetry::Phase::rendezvous) = seconds_between(claimed, running != 0 ? running : end);
    if (running == 0) {
        return out;
    }
    const Reports reports = reports_of(series);
    at(telemetry::Phase::init) = seconds_between(running, reports.first != 0 ? reports.first : end);
    at(telemetry::Phase::productive) = seconds_between(reports.first, reports.last);
    return out;
}

std::optional<double> ettr(const Job& job, const telemetry::JobSeries& series, UnixMillis now) {
    if (job.started_at == 0) {
        return std::nullopt;
    }
    const Reports reports = reports_of(&series);
    const double wall =
        seconds_between(job.started_at, job.finished_at != 0 ? job.finished_at : now);
    if (reports.first == 0 || wall <= 0) {
        return std::nullopt;
    }
    return std::clamp(seconds_between(reports.first, reports.last) / wall, 0.0, 1.0);
}

telemetry::JobMetricsView metrics_view(const Job& job, const telemetry::JobSeries* series,
                                       std::vector<telemetry::RankMetricsView>& ranks,
                                       UnixMillis now) {
    telemetry::JobMetricsView view;
    view.job_id = job.id.value;
    view.name = job.spec.name;
    view.user = job.user;
    view.framework = to_string(job.spec.framework);
    view.state = job.state;
    view.ranks_expected = job.spec.world_size();
    view.phase_seconds = phase_seconds(job, series, now);
    view.series = series;
    if (job.checkpoint_at != 0) {
        view.last_checkpoint_time = static_cast<double>(job.checkpoint_at) / 1000.0;
    }
    const Attempt* attempt = job.attempt();
    if (attempt == nullptr || attempt->placed_at == 0) {
        return view;
    }
    view.nodes = static_cast<std::int32_t>(attempt->claims.size());
    const std::int32_t per_node = job.spec.processes_per_node();
    ranks.clear();
    if (attempt->generations.empty()) {
        return view;
    }
    for (const auto& [node_rank, claim] : attempt->claims) {
        for (std::int32_t local = 0; local < per_node; ++local) {
            ranks.push_back({node_rank * per_node + local, local, claim.node});
        }
    }
    view.ranks = ranks;
    return view;
}

}  // namespace lockstep
