// One look at every GPU of the node. What a GPU or its driver does not offer is unknown (NaN) in
// the sample; a GPU that is lost has no sample, and says so in the log once.
// Field values are read in one call per GPU; nvmlDeviceGetPcieThroughput is never called (it takes
// 20 ms), nor is anything that changes a GPU.
//
// Owns the GPM samples of its GPUs. The Nvml must outlive it. One thread at a time; a call may
// block for as long as the driver likes.
#pragma once

#include "job/agent/gpu/nvml.hpp"
#include "job/agent/gpu/rank_processes.hpp"
#include "job/model/wire/gpu_batch.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A counter of 32 bits that starts again from 0, as one that does not.
class WideCounter {
  public:
    // `wide`: the driver counts in 64 bits already.
    double update(std::uint64_t raw, bool wide);
    // It may have started anew, from 0, without having wrapped.
    void restart() { started_ = false; }

  private:
    bool started_ = false;
    std::uint32_t last_ = 0;
    std::uint64_t sum_ = 0;
};

class GpuSampler {
  public:
    // Finds the GPUs; those that come later are not seen.
    explicit GpuSampler(const Nvml& nvml);
    ~GpuSampler();
    GpuSampler(const GpuSampler&) = delete;
    GpuSampler& operator=(const GpuSampler&) = delete;

    std::size_t gpus() const { return devices_.size(); }
    // Handle and number of each, for XidWatch.
    std::vector<std::pair<nvml::Device, std::uint32_t>> handles() const;
    // `time`: seconds since the Unix epoch. `processes` says whose the GPUs' processes are.
    // GPM metrics come from the second call on: they are means since the one before.
    GpuBatch sample(double time, const RankProcesses& processes);

  private:
    struct Device;
    void identify(Device& device, std::uint32_t index, const std::string& driver) const;
    bool read(Device& device, GpuSample& out);
    void read_plain(Device& device, GpuSample& out) const;
    void read_memory(Device& device, GpuSample& out) const;
    void read_fields(Device& device, GpuSample& out) const;
    void read_fallbacks(Device& device, GpuSample& out) const;
    void read_gpm(Device& device, GpuSample& out);
    void read_uses(const Device& device, const RankProcesses& processes,
                   std::vector<GpuUse>& uses) const;
    std::vector<nvml::ProcessInfo> compute_processes(const Device& device) const;

    const Nvml& nvml_;
    std::vector<std::unique_ptr<Device>> devices_;
    nvml::GpmMetricsGet gpm_{};  // 13 KiB, kept
};

}  // namespace lockstep
