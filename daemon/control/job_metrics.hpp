// Where a job's time went, from its events and telemetry, and its row in /metrics. Pure; control
// thread only.
#pragma once

#include "daemon/telemetry/exposition.hpp"
#include "daemon/telemetry/series.hpp"
#include "job/model/job.hpp"

#include <array>
#include <optional>
#include <vector>

namespace lockstep {

// Seconds per telemetry::Phase until `now`: queue (submitted → placed), launch (→ the last agent
// called in), rendezvous (→ every rank started), init (→ first report), productive (first → last
// report).
std::array<double, telemetry::kPhases> phase_seconds(const Job& job,
                                                     const telemetry::JobSeries* series,
                                                     UnixMillis now);
// Effective training time ratio: productive / wall time since the first rank ran; nothing before.
std::optional<double> ettr(const Job& job, const telemetry::JobSeries& series, UnixMillis now);

// `ranks` and `job` are borrowed by the view.
telemetry::JobMetricsView metrics_view(const Job& job, const telemetry::JobSeries* series,
                                       std::vector<telemetry::RankMetricsView>& ranks,
                                       UnixMillis now);

}  // namespace lockstep
