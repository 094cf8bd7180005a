// The GPUs' side of a node: what GpuWatch's threads see comes to the agent's thread here.
#include "job/agent/node/node.hpp"
#include "job/base/log.hpp"

#include <system_error>
#include <utility>

namespace lockstep {

void Node::watch_gpus() {
    GpuWatch::Handlers handlers;
    handlers.sampled = [this](GpuBatch batch) {
        net::post(tasks_.io(), [this, batch = std::move(batch)]() mutable {
            if (!machine_.finished()) {
                on_gpus(std::move(batch));
            }
        });
    };
    handlers.failed = [this](const GpuXidSeen& seen, std::int32_t rank) {
        net::post(tasks_.io(), [this, seen, rank] {
            if (!machine_.finished()) {
                on_gpu_error(seen, rank);
            }
        });
    };
    try {
        gpus_ = std::make_unique<GpuWatch>(std::move(handlers), config_.gpus);
    } catch (const std::system_error& error) {
        // The next tick tries again: ranks may have used up the threads of the job.
        static bool told = false;
        if (!std::exchange(told, true)) {
            log::warn("no thread to watch the GPUs", {{"why", error.what()}});
        }
    }
}

// Not before the pre-flight has forked for the last time: loading the driver's library holds locks
// that its resolver wants.
void Node::tell_gpu_watch() {
    if (!gpus_ && !machine_.finished() && !preflight_.looking()) {
        watch_gpus();
    }
    std::map<std::int64_t, std::uint32_t> pids;
    for (const wire::StartedRank& rank : machine_.started()) {
        pids[rank.pid] = static_cast<std::uint32_t>(rank.rank);
    }
    if (gpus_) {
        gpus_->set_ranks(std::move(pids));
    }
}

void Node::on_gpus(GpuBatch batch) {
    if (!machine_.connected()) {
        return;  // by the time the daemon is back it is old
    }
    batch.node_rank = static_cast<std::uint32_t>(config_.node_rank);
    outbox_.gpus(encode_gpu_batch(batch));
    wake();
}

void Node::on_gpu_error(const GpuXidSeen& seen, std::int32_t rank) {
    wire::GpuXid error;
    error.generation = machine_.generation();
    error.rank = rank;
    error.gpu = static_cast<std::int32_t>(seen.gpu);
    error.xid = seen.xid;
    error.time = static_cast<UnixMillis>(seen.time * 1000.0);
    outbox_.event(std::move(error));
    wake();
}

}  // namespace lockstep
