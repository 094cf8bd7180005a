// What a specification asks of sbatch and srun, as options: the same for every writer of the batch
// script, and what a user signs where only the user may decide it (signed_statement.hpp). Pure; any
// thread.
#pragma once

#include "job/model/spec/placement.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Names without dashes; "" is the value of a switch.
using OptionList = std::vector<std::pair<std::string, std::string>>;

struct SbatchOptions {
    // In the order of the script. Two may be without a value: `exclude` is then what earlier
    // attempts have lost, `time` what the partition gives to a job that states none.
    OptionList sbatch;
    // Of gpu-bind, no-kill, container-image and container-mounts; agent-restarts is the agent's own
    // --restarts.
    OptionList srun;
    std::int32_t ranks_per_node = 1;
};

// `gpus_as_gres`: --gres=gpu:N instead of --gpus-per-node=N.
SbatchOptions sbatch_options(const AttemptRequest& request, bool gpus_as_gres);

}  // namespace lockstep
