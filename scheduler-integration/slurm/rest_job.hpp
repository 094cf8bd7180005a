// A batch script as slurmrestd wants it: the script and, because slurmrestd reads no #SBATCH line,
// each of its directives as a property of the job. The names and types are those of the OpenAPI
// plugin v0.0.38 (Slurm 22.05, src/plugins/openapi/v0.0.38/jobs.c) and of the data parsers v0.0.39
// to v0.0.45 (src/plugins/data_parser/v0.0.NN/parsers.c, JOB_DESC_MSG). Pure; any thread.
#pragma once

#include "job/base/result.hpp"
#include "scheduler-integration/slurm/rest_directives.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::rest {

// The versions that are known here: v0.0.38 … v0.0.45. Seen live: 38, 42 to 45.
inline constexpr int kOldestParser = 38;
inline constexpr int kNewestParser = 45;
std::string version_text(int parser);  // "v0.0.38"
// Whether its partitions have their flags, DEFAULT among them: not from v0.0.39 to v0.0.44
// (parsers.c of Slurm 23.02 to 25.11: `add_skip(flags)`).
constexpr bool tells_default_partition(int parser) {
    return parser < 39 || parser > 44;
}

struct JobSite {
    int parser = kOldestParser;
    std::string user;
    std::string home;      // HOME of the script; "" = left out
    std::int64_t now = 0;  // Unix seconds, for --begin=now+1hour
    // Variables of the script's environment by which sbatch hands a soft limit to the job:
    // {"SLURM_RLIMIT_CORE", "0"}. Slurm takes them out again. Others are those of slurmd.
    std::vector<std::pair<std::string, std::string>> limits{};
};
// The body of POST /slurm/v0.0.NN/job/submit. invalid: a directive that has no property in this
// version, or that is not known at all; the message names it. Nothing is ever left out.
Result<std::string> submission(std::string_view script, const JobSite& site);

}  // namespace lockstep::rest
