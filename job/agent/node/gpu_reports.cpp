#include "job/agent/node/gpu_reports.hpp"

#include "job/base/log.hpp"

#include <map>
#include <system_error>
#include <utility>

namespace lockstep {

GpuReports::GpuReports(TaskGroup& tasks, const NodeConfig& config, const NodeMachine& machine,
                       Outbox& outbox, std::function<void()> wake)
    : tasks_(tasks), config_(config), machine_(machine), outbox_(outbox), wake_(std::move(wake)) {}

void GpuReports::begin() {
    GpuWatch::Handlers handlers;
    handlers.sampled = [this](GpuBatch batch) {
        net::post(tasks_.io(), [this, batch = std::move(batch)]() mutable {
            if (!machine_.finished()) {
                sampled(std::move(batch));
            }
        });
    };
    handlers.failed = [this](const GpuXidSeen& seen, std::int32_t rank) {
        net::post(tasks_.io(), [this, seen, rank] {
            if (!machine_.finished()) {
                failed(seen, rank);
            }
        });
    };
    try {
        watch_ = std::make_unique<GpuWatch>(std::move(handlers), config_.gpus);
    } catch (const std::system_error& error) {
        // The next time tries again: ranks may have used up the threads of the job.
        if (!std::exchange(told_, true)) {
            log::warn("no thread to watch the GPUs", {{"why", error.what()}});
        }
    }
}

void GpuReports::follow(const std::vector<wire::StartedRank>& ranks, bool may_begin) {
    if (watch_ == nullptr && may_begin) {
        begin();
    }
    if (watch_ == nullptr) {
        return;
    }
    std::map<std::int64_t, std::uint32_t> pids;
    for (const wire::StartedRank& rank : ranks) {
        pids[rank.pid] = static_cast<std::uint32_t>(rank.rank);
    }
    watch_->set_ranks(std::move(pids));
}

void GpuReports::sampled(GpuBatch batch) {
    if (!machine_.connected()) {
        return;  // by the time the daemon is back it is old
    }
    batch.node_rank = static_cast<std::uint32_t>(config_.node_rank);
    outbox_.gpus(encode_gpu_batch(batch));
    wake_();
}

void GpuReports::failed(const GpuXidSeen& seen, std::int32_t rank) {
    wire::GpuXid error;
    error.generation = machine_.generation();
    error.rank = rank;
    error.gpu = static_cast<std::int32_t>(seen.gpu);
    error.xid = seen.xid;
    error.time = static_cast<UnixMillis>(seen.time * 1000.0);
    outbox_.event(std::move(error));
    wake_();
}

}  // namespace lockstep
