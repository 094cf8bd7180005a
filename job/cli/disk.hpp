// What jobs take on disk, and removing those that are over. Blocks; the main thread.
#pragma once

#include "job/base/json.hpp"
#include "job/cli/context.hpp"

#include <cstdint>
#include <string>

namespace lockstep::cli {

// "512 B", "1.2 MiB", "3.4 TiB": powers of 1024.
std::string bytes_text(std::int64_t bytes);
// The answer of GET …/disk on one line: "3.1 GiB: checkpoints 3.0 GiB, logs 12.0 MiB".
std::string disk_text(const Json& disk);

// lockstep du: jobs with what they take, the largest first. Of all jobs those that can be measured
// within limits::kDiskUsePatience.
Exit disk_use(Context& context);
// lockstep rm.
Exit remove_jobs(Context& context);

}  // namespace lockstep::cli
