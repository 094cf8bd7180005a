// Jobs from `squeue --json` and slurmrestd, whatever the data_parser: v0.0.37 (Slurm 22.05) to
// v0.0.44 (25.11). The shapes are recognized by their members, not by the version's number, since
// sites pin and patch it. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "scheduler-integration/slurm/slurm_job.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct SlurmJsonJobs {
    std::vector<SlurmJob> jobs;
    std::size_t malformed = 0;          // records without a usable id, name, user or state
    std::string data_parser;            // "v0.0.40"; empty where the document does not tell
    std::string slurm_release;          // "24.05.2"
    std::vector<std::string> warnings;  // Slurm's own
};

// The whole document, {"meta", "jobs": […], "errors": […]}. Each record is parsed by itself, so the
// number of jobs is not bound by limits::kJsonNodes. invalid: not JSON, truncated, no `jobs`.
// unavailable: `errors` is not empty (it may come with HTTP 200), the message is Slurm's; not_found
// where that says "Invalid job id specified".
Result<SlurmJsonJobs> parse_slurm_jobs_json(std::string_view text);

// One record of `jobs`, for job/{id} answers that were parsed already. invalid: no usable id, name,
// user or state.
Result<SlurmJob> slurm_job_from_json(const Json& record);

}  // namespace lockstep
