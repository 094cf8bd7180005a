// One job as Slurm describes it, from whichever program or version. Values only; any thread.
#pragma once

#include "scheduler-integration/slurm/slurm_state.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// A field Slurm did not tell is empty, 0 or absent. Times are Unix seconds.
struct SlurmJob {
    std::int64_t id = 0;
    std::string cluster;  // empty: the one that was asked
    std::string name;
    std::string user;                 // as printed; a number where the name does not resolve
    std::optional<std::int64_t> uid;  // sacct and squeue know it
    SlurmState state;
    std::string reason;  // Slurm's word, e.g. "Resources"; empty for "None"
    std::string nodes;   // hostlist text of the allocation, see hostlist.hpp
    std::string partition;
    // Of a terminal state only: before that Slurm prints 0:0 (sacct) or nothing.
    std::optional<int> exit_code;
    std::optional<int> signal;
    // The worst of the job's steps; the cause when srun was killed on a bad exit. sacct only.
    std::optional<int> derived_exit_code;
    std::optional<int> derived_signal;
    std::int64_t submitted_at = 0;
    std::int64_t started_at = 0;
    std::int64_t ended_at = 0;
    std::int64_t estimated_start = 0;  // of a pending job
    int restarts = 0;

    SlurmVerdict verdict() const { return judge(state, reason, restarts); }
};

// What Slurm tells of one job when it is asked for that one, and squeue does not print.
struct SlurmJobDetail {
    bool preempted = false;  // it was told to make room; its state may say FAILED all the same
    int restarts = 0;
    std::optional<int> exit_code;
    std::optional<int> signal;
};

}  // namespace lockstep
