// Waits for critical errors (Xid) of the node's GPUs, on a thread of its own: the library's wait
// blocks. Owns the thread and the event set. The destructor waits for the thread: 0.1 s, or as long
// as the driver does not return, so it belongs on a thread that may be left behind (GpuWatch's).
// The Nvml must outlive it.
#pragma once

#include "job/agent/gpu/nvml.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

class XidWatch {
  public:
    // `seen` is called on the thread, with the GPU's number and the error's, as often as the driver
    // says so. Without any GPU that takes part, or with an old library, there is no thread.
    XidWatch(const Nvml& nvml, std::vector<std::pair<nvml::Device, std::uint32_t>> gpus,
             std::function<void(std::uint32_t gpu, std::uint32_t xid)> seen);
    ~XidWatch();
    XidWatch(const XidWatch&) = delete;
    XidWatch& operator=(const XidWatch&) = delete;

  private:
    void run();

    const Nvml& nvml_;
    std::vector<std::pair<nvml::Device, std::uint32_t>> gpus_;
    std::function<void(std::uint32_t, std::uint32_t)> seen_;
    nvml::EventSet set_ = nullptr;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace lockstep
