// A job's row in /metrics, from its events and telemetry. Pure; control thread only.
#pragma once

#include "daemon/telemetry/exposition/exposition.hpp"
#include "daemon/telemetry/series/series.hpp"
#include "job/model/job.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <vector>

namespace lockstep {

// `ranks` and `job` are borrowed by the view.
telemetry::JobMetricsView metrics_view(const Job& job, const Scheduler& scheduler,
                                       const telemetry::JobSeries* series,
                                       std::vector<telemetry::RankMetricsView>& ranks,
                                       UnixMillis now);

}  // namespace lockstep
