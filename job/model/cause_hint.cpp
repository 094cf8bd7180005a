#include "job/model/cause_hint.hpp"

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

Cause with_hint(const JobSpec& spec, Cause cause) {
    const bool no_gpu = std::any_of(kNoGpu.begin(), kNoGpu.end(), [&](std::string_view words) {
        return cause.error.find(words) != std::string::npos;
    });
    if (no_gpu && spec.resources.gpus_per_node == 0) {
        cause.message += " (the job asks for no GPU: resources.gpus_per_node, lockstep run -G)";
    }
    return cause;
}

}  // namespace lockstep
