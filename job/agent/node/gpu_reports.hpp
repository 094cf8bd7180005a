// The GPUs' side of a node: what GpuWatch's threads see comes to the agent's thread here, and goes
// to the daemon. Agent thread only; what it refers to outlives it.
#pragma once

#include "job/agent/gpu/gpu_watch.hpp"
#include "job/agent/machine/node_machine.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

class GpuReports {
  public:
    // `wake`: there is something to send.
    GpuReports(TaskGroup& tasks, const NodeConfig& config, const NodeMachine& machine,
               Outbox& outbox, std::function<void()> wake);

    // Begins, if it has not begun, and knows these processes as ranks from now on. Not before the
    // pre-flight has forked for the last time: loading the driver's library holds locks that its
    // resolver wants.
    void follow(const std::vector<wire::StartedRank>& ranks, bool may_begin);
    // Waits for a driver that may not answer.
    void close() { watch_.reset(); }

  private:
    void begin();
    void sampled(GpuBatch batch);
    void failed(const GpuXidSeen& seen, std::int32_t rank);

    TaskGroup& tasks_;
    const NodeConfig& config_;
    const NodeMachine& machine_;
    Outbox& outbox_;
    std::function<void()> wake_;
    bool told_ = false;                // that there is no thread for it
    std::unique_ptr<GpuWatch> watch_;  // the last: its threads call in here
};

}  // namespace lockstep
