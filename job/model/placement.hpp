// What a scheduler is asked to place. Plain values; any thread.
#pragma once

#include "job/base/ids.hpp"
#include "job/model/spec.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// One attempt of one job: everything a scheduler may know about it.
struct AttemptRequest {
    JobId job;
    std::int32_t attempt = 1;
    std::string name;  // the job's
    Resources resources;
    std::string directory;  // attempt directory, absolute; holds agent.json
};

}  // namespace lockstep
