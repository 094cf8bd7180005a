// What others see of a job beside its events: its JSON, its row in the store, its part of /metrics.
// Control thread; the context and the machine must outlive it.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/telemetry/exposition/exposition.hpp"
#include "job/model/job_view.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

class JobFace {
  public:
    JobFace(ControlContext& context, JobMachine& machine) : context_{context}, machine_{machine} {}

    // The job as the API shows it now; rebuilt when the job or its telemetry has changed, for which
    // the machine's surroundings are asked.
    std::shared_ptr<const std::string> view(const std::function<Surroundings()>& surroundings);
    // The job has changed.
    void forget() { view_.reset(); }
    LiveView live() const;
    JobRow row(const Job& job) const;
    // What /metrics shows beside the job's events and series, in a view of metrics_view().
    void describe(telemetry::JobMetricsView& view) const;

  private:
    const Job& job() const { return machine_.job(); }

    ControlContext& context_;
    JobMachine& machine_;
    std::shared_ptr<const std::string> view_;
    std::string view_reason_;  // the pending reason and the start that `view_` shows
    UnixMillis view_start_ = 0;
    std::chrono::steady_clock::time_point view_at_;
};

}  // namespace lockstep
