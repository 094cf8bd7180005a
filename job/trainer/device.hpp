// Where a rank computes: on the CPU, or on one GPU with a LibTorch that has CUDA. Training thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/rank/rank_context.hpp"

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct ChosenDevice {
    std::vector<std::int32_t> gpus;  // as CUDA counts those that this process sees; none: the CPU
    std::string name;     // of the first: "NVIDIA H100 80GB HBM3, 79 GiB"; empty: the CPU
    std::string why_cpu;  // GPUs were given to this rank and are not used: why; else empty
};

// By train.devices: auto takes GPUs that the rank was given (CUDA_VISIBLE_DEVICES, as the agent and
// Slurm set it; without an agent any that CUDA finds), and the CPU otherwise. Of several GPUs it
// takes the one whose number, or whose place among train.gpus, is LOCAL_RANK; with replicated and
// central_storage all of them. A parameter server takes none.
// invalid: gpu cannot be had, with the reason; a GPU was given and does not work; fp16 on the CPU.
Result<ChosenDevice> choose_device(const TrainConfig& config, const RankContext& context,
                                   const Environment& environment = process_environment);

// Of `visible` GPUs, which CUDA_VISIBLE_DEVICES names `named`, those that this rank takes. invalid:
// there is no such one, or a batch has fewer samples.
Result<std::vector<std::int32_t>> gpus_of_rank(const TrainConfig& config,
                                               const RankContext& context, int visible,
                                               const std::string& named);
// Why there is no GPU, from what LibTorch says of it: of a driver that is too old with its CUDA.
std::string why_no_gpu(const std::string& torch_says);
// Why a rank does not see the GPU of its number. `named`: CUDA_VISIBLE_DEVICES.
std::string why_not_that_gpu(std::int32_t wanted, int visible, const std::string& named);

struct GpuWork {
    std::string gpu;                // "NVIDIA H100 80GB HBM3, 79 GiB"
    std::int64_t batch_size = 0;    // samples of a rank
    bool finds_batch_size = false;  // train.find_batch_size
};
// The job's cause. exhausted: memory did not suffice; the batch's size, which is what to change,
// and what was asked for and free come first, for a cause ends after 300 bytes. internal: anything
// else. LibTorch's words are what tells them apart: not every version has a type for it.
Error gpu_failure(const std::string& said, const GpuWork& work);

// Of the thread that calls it, from now on: the GPU, and a stream of its own there.
void use_device(at::Device device);

// A copy on `device` with the same strides. To a GPU it goes through pinned memory and is only
// enqueued; `host` may be changed at once. On the CPU it is `host` itself.
at::Tensor to_device(const at::Tensor& host, at::Device device);

// What dropout() on this device draws next depends on `key` alone. Not while a graph is captured.
void seed_device(at::Device device, std::uint64_t key);

// Layers have loops of their own for the CPU, and so have optimizers and strategies; elsewhere they
// are made of LibTorch's operations. While one of these lives this process trains on the CPU as on
// a GPU: for tests that compare the two.
class PortableTraining {
  public:
    PortableTraining();
    ~PortableTraining();
    PortableTraining(const PortableTraining&) = delete;
    PortableTraining& operator=(const PortableTraining&) = delete;
};
bool trains_portably();
// Whether our own loops compute what has this tensor as its input.
bool own_loops(const at::Tensor& x);

}  // namespace lockstep
