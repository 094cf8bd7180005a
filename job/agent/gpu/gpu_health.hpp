// Whether the node's GPUs are fit for a job, as NVML tells of it: the pre-flight's look at them,
// once, before any rank runs. Nothing is changed on a GPU. What a driver does not know or does not
// say is left out of the answer and named in `unseen`; that is never an error.
// Blocking, for as long as the driver likes: run as an errand. Any thread.
#pragma once

#include "job/agent/gpu/nvml.hpp"
#include "job/model/preflight/preflight.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct GpuLook {
    std::vector<GpuHealth> gpus;
    std::vector<std::string> unseen;  // "the recovery action: Not Supported", each once
};

// `visible`: CUDA_VISIBLE_DEVICES of this node, nullptr if there is none: only these are looked at.
// One that it names by a UUID and that the driver does not show is lost, without a number.
// `root` is put in front of /proc, for the names of processes.
GpuLook look_at_gpu_health(const Nvml& nvml, const std::string* visible,
                           const std::filesystem::path& root);

}  // namespace lockstep
