// What is only in the words that slurmd, slurmstepd and srun wrote into a job's logs: that Slurm
// ended it for its memory (it is FAILED or OUT_OF_MEMORY to Slurm) and on which node, and why an
// agent was not started.
#pragma once

#include "scheduler-integration/observation.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::slurm {

// From batch.log and agent-NNNNN.log of an attempt's directory, the last 8 KiB of each, of 512
// nodes at most; the first node that has such a line. Blocking; any thread.
std::optional<MemoryEvidence> find_memory_evidence(const std::filesystem::path& directory,
                                                   std::int32_t nodes);

// The last line of agent-NNNNN.log if slurmstepd wrote it: the agent was not started, or is gone.
// Else the last line of batch.log in which srun says that the task of this node rank was not
// launched or has ended. "" if there is neither. Blocking; any thread.
std::string find_launch_words(const std::filesystem::path& directory, std::int32_t node_rank);

}  // namespace lockstep::slurm
