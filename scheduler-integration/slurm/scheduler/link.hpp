// Whether Slurm answers, by the last that was heard of it. The scheduler writes it, its parts read
// it: again after each co_await, since a submission may find Slurm down meanwhile. Control thread.
#pragma once

#include <string>

namespace lockstep {

struct SlurmLink {
    bool reachable = true;
    std::string why;   // not reachable: what is told of it
    int failures = 0;  // questions and submissions since the last answer; sets the pause
};

}  // namespace lockstep
