// Whose doing the end of a Slurm job was that no rank had run in: Slurm's own, then it is handed in
// again, or somebody's. Values and pure functions; any thread.
#pragma once

#include "scheduler-integration/slurm/slurm_text.hpp"

#include <cstdint>

namespace lockstep {

enum class Blame : std::uint8_t {
    slurm,    // a node, a slurmctld that was killed: the same job may well run the next time
    others,   // a person, the job itself, its limits
    unclear,  // `detail` would tell
};

// `job` has ended. `detail`: what Slurm says of it when asked for it alone; nullptr: not asked. Its
// memory, its deadline and preemption are not Slurm's fault; that its time passed without an agent
// is.
Blame blame(const SlurmJob& job, const SlurmJobDetail* detail);

}  // namespace lockstep
