// One GPU's part of the test with NCCL: one rank, in a thread of its own. All ranks of both nodes
// make the same calls in the same order.
#pragma once

#include "job/collective/nccl.hpp"
#include "job/collective/nccl_library.hpp"

#include <atomic>
#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

struct GpuRankResult {
    std::string error;        // "" = it came to its end
    bool of_another = false;  // the error only tells of another rank's
    bool own = false;         // the error is this GPU's, or its driver's
    std::int64_t bytes = 0;   // of the large all-reduce
    double bus_bytes_per_second = 0;
    double latency_seconds = 0;
    std::int64_t wrong = 0;  // values
    // Kept until the process ends: what ends a communicator waits for what others may hold up.
    std::unique_ptr<NcclCommunicator> ranks;
};

// What the ranks of one process share.
struct GpuRanks {
    explicit GpuRanks(std::ptrdiff_t count) : together(count) {}

    CudaDriver driver;
    KeyStore* keys = nullptr;
    std::function<void(const char*)> stage;  // called by one rank
    // No GPU's memory is allocated while a kernel of another one waits for this one's.
    std::barrier<> together;
    std::atomic<bool> failed{false};
};

// Blocks; one thread for each rank of `shared`. Waits for other ranks no longer than
// options.init_timeout and options.silence; for a call into NCCL or the driver that does not come
// back as long as that takes.
GpuRankResult run_gpu_rank(const NcclOptions& options, GpuRanks& shared,
                           const ExchangeNcclIds& exchange);

}  // namespace lockstep
