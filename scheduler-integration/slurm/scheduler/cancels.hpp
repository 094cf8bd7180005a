// Ends jobs of an attempt in Slurm by number and name. What end() and abandon() cannot cancel is
// logged, and tried again at the next answer; end_unseen() leaves both to its caller. Control
// thread; lives as long as the scheduler.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"
#include "scheduler-integration/slurm/scheduler/attempt_files.hpp"
#include "scheduler-integration/slurm/scheduler/pace.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <cstdint>

namespace lockstep {

class SlurmCancels {
  public:
    // All must outlive it.
    SlurmCancels(SlurmBackend& backend, SlurmPace& pace, SlurmAttemptFiles& files)
        : backend_(backend), pace_(pace), files_(files) {}

    Task<void> end(SlurmTrackedPointer tracked, std::int64_t id);
    // What squeue has never shown may wait in Slurm all the same. Not before another is submitted:
    // a slurmctld that has lost a job gives its number out again, and the name is the same. The
    // last error; what was not cancelled stays in the attempt's `unseen`.
    Task<Status> end_unseen(SlurmTrackedPointer tracked);
    // No agent has come from the attempt's job. It is written down before: the cancel is done by
    // the jobs' user, and the next daemon would take it for a person's.
    Task<void> abandon(SlurmTrackedPointer tracked);

  private:
    SlurmBackend& backend_;
    SlurmPace& pace_;
    SlurmAttemptFiles& files_;
};

}  // namespace lockstep
