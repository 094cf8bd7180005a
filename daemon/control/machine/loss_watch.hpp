// Which nodes of a job are lost, and what those that cannot be asked any more have left behind. The
// faults are added to a draft, with what is to become of their agents. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/left_behind.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"
#include "scheduler-integration/observation.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep {

class LossWatch {
  public:
    // `files` outlives it.
    explicit LossWatch(const LeftBehind& files) : files_(files) {}

    // A walk over all nodes: those whose agents have been silent for too long.
    void note_silent(Draft& draft, AttemptRun& run);
    // Those that the scheduler says are lost, and results of ranks whose agents are gone.
    void read_results(Draft& draft, const AttemptRun& run, const Observation& seen) const;
    // Those that were sent ABORT, and whose ranks do not end.
    static void lose_stuck(Draft& draft, const AttemptRun& run);

  private:
    void read_result_of(Draft& draft, std::int32_t slot) const;
    event::FaultSeen how_it_was_lost(const Job& job, std::int32_t slot,
                                     const Observation& seen) const;
    void blame_memory(const Job& job, event::FaultSeen& fault) const;

    const LeftBehind& files_;
    std::optional<std::chrono::steady_clock::time_point> looked_;  // Surroundings::timers
};

}  // namespace lockstep
