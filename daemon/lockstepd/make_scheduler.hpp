// The scheduler that the settings ask for. Start-up only.
#pragma once

#include "daemon/lockstepd/settings.hpp"
#include "daemon/lockstepd/slurm_metrics.hpp"
#include "job/base/clock.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <filesystem>
#include <memory>

namespace lockstep {

// invalid: settings of the scheduler that contradict each other.
Status plan_scheduler(const DaemonSettings& settings);

// not_found: lockstep-agent is not there. The arguments outlive the scheduler; `metrics` is told of
// every call to Slurm.
Result<std::unique_ptr<Scheduler>> make_scheduler(net::io_context& io, const Clock& clock,
                                                  const DaemonSettings& settings,
                                                  SlurmMetrics& metrics,
                                                  const std::filesystem::path& data_directory);

}  // namespace lockstep
