// What a user should change, where a rank's error is known to come of what its job asks for. Pure;
// any thread.
#pragma once

#include "job/model/job.hpp"

namespace lockstep {

// A rank that finds no GPU, of a job without gpus_per_node: its message says so. Slurm hides the
// GPUs of a node from jobs that ask for none.
Cause with_hint(const JobSpec& spec, Cause cause);

}  // namespace lockstep
