// What this program was started with and has changed for itself alone: the soft limit of open files
// and the umask. Whatever it starts for a user gets both back: sbatch and srun hand their own
// limits and umask to every rank (PropagateResourceLimits and SLURM_UMASK in sbatch(1)), so that a
// daemon's would become the job's. Change them in main, before there are other threads.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct StartLimits {
    std::uint64_t open_files = 0;  // RLIMIT_NOFILE, soft; 0 = as it is now
    int umask = -1;                // -1 = as it is now
};

// As it was before the changes below.
const StartLimits& start_limits();

// As many descriptors as the system lets us have.
void raise_open_files();
// Files are accessible to their owner only, regardless of the mode given to open().
void narrow_umask();
// Started by a program that had changed its own already: these are the ones to give back.
void assume_start_limits(const StartLimits& before);

// In a child, before it becomes the user's program. Async-signal-safe.
void give_back_limits(const StartLimits& before);

// "1024:18", for a command line; what is no such text changes nothing.
std::string to_text(const StartLimits& limits);
StartLimits start_limits_from(const std::string& text);

}  // namespace lockstep
