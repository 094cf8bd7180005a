// What is wrong with a run that goes on, told as events. Lives as long as the job: what the
// generations before have told is not told once more. Control thread only.
#pragma once

#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/generation_run.hpp"
#include "daemon/telemetry/series/anomalies.hpp"
#include "job/model/job.hpp"

#include <chrono>
#include <optional>

namespace lockstep {

class AnomalyRun {
  public:
    // Ranks of a job that has a generation ran before this daemon began.
    explicit AnomalyRun(const Job& job)
        : watch_(job.spec.watch.straggler_score), resumed_(job.generation() != nullptr) {}

    const telemetry::AnomalyWatch& watch() const { return watch_; }
    // A generation has been fixed.
    void begin(const telemetry::JobSeries* series);
    // At most once in a while; `last`: now, since its ranks have ended.
    void look(Draft& draft, GenerationRun& run, bool last = false);

  private:
    telemetry::AnomalyWatch watch_;
    std::optional<std::chrono::steady_clock::time_point> looked_{};
    bool resumed_;
};

}  // namespace lockstep
