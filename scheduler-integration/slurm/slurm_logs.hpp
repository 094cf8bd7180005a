// Whether Slurm ended a job for its memory: such a job is FAILED or OUT_OF_MEMORY to Slurm, and
// which node it was is only in what slurmd and slurmstepd wrote into the job's logs.
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

}  // namespace lockstep::slurm
