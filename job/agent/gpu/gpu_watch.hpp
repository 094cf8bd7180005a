// The node's GPUs, watched off the agent's own thread: a driver may take its time. A thread samples
// them once a second, XidWatch's waits for errors. Without a library or a GPU both end at once and
// one line in the log says why.
//
// Owns the threads. Destroyed (it waits for both, as long as the call that is under way takes, or
// 0.1 s) before what the handlers refer to; they are called on its threads.
#pragma once

#include "job/agent/gpu/nvml.hpp"
#include "job/model/gpu_batch.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace lockstep {

class GpuWatch {
  public:
    struct Handlers {
        // node_rank is the caller's to fill in.
        std::function<void(GpuBatch)> sampled;
        // An error of this number on this GPU; `rank`: who used the GPU at the last look, -1 if
        // nobody or several did. The first, and then one a minute of each kind.
        std::function<void(GpuXidSeen, std::int32_t rank)> failed;
    };
    GpuWatch(Handlers handlers, std::chrono::milliseconds interval,
             const char* library = kNvmlLibrary);
    ~GpuWatch();
    GpuWatch(const GpuWatch&) = delete;
    GpuWatch& operator=(const GpuWatch&) = delete;

    // The ranks' processes from now on: process id → rank. Any thread.
    void set_ranks(std::map<std::int64_t, std::uint32_t> pids);

  private:
    void run();
    void watch(const Nvml& nvml);
    void remember(const GpuBatch& batch);
    void on_xid(std::uint32_t gpu, std::uint32_t xid);
    std::int32_t rank_on(std::uint32_t gpu) const;

    Handlers handlers_;
    std::chrono::milliseconds interval_;
    const char* library_;
    std::mutex mutex_;  // of all below
    std::condition_variable wake_;
    bool stop_ = false;
    std::map<std::int64_t, std::uint32_t> pids_;
    std::vector<GpuUse> uses_;  // of every GPU when it was seen last
    // By GPU and number: the newest, and when one was handed on.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<double, double>> xids_;
    std::thread thread_;
};

}  // namespace lockstep
