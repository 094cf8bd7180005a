// Which of its node's GPUs a rank sees. Most frameworks want all of them and take the one of their
// local rank; a TensorFlow worker takes all GPUs it sees, and a server should see none.
// Pure; any thread.
#pragma once

#include "job/model/spec/spec.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Neighbours among the GPUs that are visible on the node.
struct GpuSlice {
    std::int32_t first = 0;
    std::int32_t count = 0;
    bool operator==(const GpuSlice&) const = default;
};

// Nothing: all GPUs of the node.
std::optional<GpuSlice> gpu_slice(const JobSpec& spec, std::int32_t rank);

// The value of CUDA_VISIBLE_DEVICES for the slice; `visible` is the node's own, "" if it has none.
std::string visible_devices(const GpuSlice& slice, const std::string& visible);

// Which of its node's visible GPUs the rank with this local number computes on, where each takes
// one: with resources.ranks_per_gpu neighbours have the same.
std::int32_t device_of_rank(const JobSpec& spec, std::int32_t local_rank);

// Adds why resources.ranks_per_gpu cannot be had.
void check_shared_gpus(const JobSpec& spec, std::vector<FieldError>& errors);

// Whether the GPUs do not go round among ranks that each need some of their own.
bool has_too_few_gpus(const JobSpec& spec);

}  // namespace lockstep
