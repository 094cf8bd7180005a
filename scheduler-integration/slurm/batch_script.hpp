// The batch script of an attempt: a pure function of the spec's typed fields and the site's
// settings. No text of the user is in it but allow-listed values on #SBATCH lines and the job's
// name as part of Slurm's job name; argv and environment reach the ranks through the agent.
//
// The options are #SBATCH lines, not arguments, so the same file works when a person hands it to
// sbatch. Environment variables SBATCH_* override such lines: Lockstep runs sbatch without them.
// Any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/placement.hpp"
#include "scheduler-integration/slurm/batch_text.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::slurm {

// "22.05": the release that decides which options there are.
struct Release {
    std::int32_t year = 22;
    std::int32_t month = 5;
    auto operator<=>(const Release&) const = default;
};

// What the script needs to know of the place where it runs.
struct BatchSite {
    Release release;
    std::string agent_path;  // lockstep-agent as the nodes see it, absolute
    std::string slurm_bin;   // directory of srun as the nodes see it, absolute; "" = system's
    // --time of a job that states none; the partition's default or maximum, or the daemon's own.
    // At least 1: an unlimited job never starts before a maintenance window.
    std::int64_t default_time_limit_seconds = 0;
    bool gpus_as_gres = false;  // --gres=gpu:N instead of --gpus-per-node=N
};

struct BatchScript {
    std::string text;
    std::string path;                           // <attempt directory>/batch.sh: where to write it
    std::vector<std::string> sbatch_arguments;  // after "sbatch": --parsable <path>
    std::string name;                           // Slurm's job name, batch_job_name()
    // SHA-256 of the text with job id, attempt number and attempt directory left out: equal for
    // all attempts, and jobs, that run the same.
    std::string hash;
};

using lockstep::kTemplateJob;
inline constexpr std::string_view kBatchFileName = "batch.sh";
// Number of the Slurm job that lockstepd cancelled because no agent had come from it.
inline constexpr std::string_view kAbandonedFileName = "abandoned";
// Since when nothing of the attempt can be on its way to Slurm: slurm_doubt.hpp.
inline constexpr std::string_view kDoubtFileName = "in-doubt";
// Number and time of submission of the Slurm job that was seen last: tells it when it is renamed.
inline constexpr std::string_view kSlurmJobFileName = "slurm-job";
inline constexpr std::string_view kBatchLogName = "batch.log";  // what the script itself prints
std::string batch_job_name(std::string_view name, const JobId& job, std::int32_t attempt);

// The input of batch_text.hpp, made of a request and a site.
std::string excluded_nodes(const AttemptRequest& request);
std::string default_time(const BatchSite& site);
bool has_nil(const Release& release);

// invalid, with the pointer of the field to change if there is one: a path with characters that
// would need quoting, no time limit to fall back on, seconds_before_timeout ≥ the time limit.
Result<BatchScript> make_batch_script(const AttemptRequest& request, const BatchSite& site);

}  // namespace lockstep::slurm
