// The node's GPUs, watched off the agent's own thread: a driver may take its time. A thread samples
// them once a second, XidWatch's waits for errors. Without a library or a GPU both end at once and
// one line in the log says why.
//
// Owns the threads; the handlers are called on them. Destroyed before what the handlers refer to:
// it waits for both threads, but not longer than 2 s. A call into the driver may never return (Xid
// 79, 119); then they are left behind with what they use (LooseThread) and call no handler any
// more.
#pragma once

#include "job/agent/gpu/nvml.hpp"
#include "job/async/loose_thread.hpp"
#include "job/model/wire/gpu_batch.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

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
    struct Shared;  // with the threads, for as long as they live

    std::shared_ptr<Shared> shared_;
    LooseThread thread_;
};

}  // namespace lockstep
