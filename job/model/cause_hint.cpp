// What a user should change, where a rank's error is known to come of what its job asks for.
#include "job/model/job.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

// Of torch 1.13 to 2.15 and of the CUDA runtime.
constexpr std::array<std::string_view, 5> kNoGpu{
    "No CUDA GPUs are available", "no CUDA-capable device is detected",
    "Found no NVIDIA driver on your system", "only supported with GPUs, no GPUs found",
    "requires at least one CUDA device"};

}  // namespace

Cause cause_of(const Job& job, const event::RankExited& exit) {
    Cause cause = cause_of(exit);
    const bool no_gpu = std::any_of(kNoGpu.begin(), kNoGpu.end(), [&](std::string_view words) {
        return exit.error.find(words) != std::string::npos;
    });
    // Slurm hides the GPUs of a node from jobs that ask for none.
    if (no_gpu && job.spec.resources.gpus_per_node == 0) {
        cause.message += " (the job asks for no GPU: resources.gpus_per_node, lockstep run -G)";
    }
    return cause;
}

}  // namespace lockstep
