// What a SlurmScheduler is told at its start. A value; any thread.
#pragma once

#include "job/base/limits.hpp"
#include "scheduler-integration/slurm/slurm_doubt.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace lockstep {

struct SlurmSchedulerOptions {
    std::string agent_path;
    std::string slurm_bin;                       // for the script; "" = system's
    std::chrono::milliseconds poll_min{5'000};   // while something is about to change
    std::chrono::milliseconds poll_max{60'000};  // while everything only runs
    double reads_per_second = 0.5;               // budget of all questions, with a burst of 4
    double submissions_per_second = 20;
    std::size_t submissions_at_once = 4;
    std::chrono::seconds quarantine{0};              // 0 = the credential's lifetime + 60 s
    std::string steady_clock = steady_clock_name();  // of which the next daemon is told times
    // With nothing to follow: a tenth of the time since the last change, up to this.
    std::chrono::milliseconds idle_most{60'000};
    std::chrono::seconds between_empty{5};   // two answers without it, so far apart
    std::chrono::seconds over_patience{60};  // what is left after a job's end is cancelled
    std::chrono::seconds detail_patience{limits::kSlurmDetailPatience};
    std::chrono::seconds unclaimed{180};  // what runs without an agent is cancelled
    // What may have been cancelled by a person and forgotten by Slurm while no lockstepd looked
    // ends; else it is handed in again.
    bool doubt_ends = false;
    bool gpus_as_gres = false;
    std::size_t estimates_at_once = 2;  // each is a process, and work for slurmctld
    // An attempt was started: how long Slurm had let it wait. Once for each allocation.
    std::function<void(const std::string& partition, double seconds)> waited{};
};

}  // namespace lockstep
