// What the nodes' GPUs do now: the newest look of every agent (job/model/wire/gpu_batch.hpp),
// forgotten when it is older than limits::kGpuFreshSeconds. Two jobs on a node see the same GPUs:
// the newer look counts. Owns the looks; control thread only.
#pragma once

#include "job/base/limits.hpp"
#include "job/model/wire/gpu_batch.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

struct GpuSource {
    std::string job;
    std::int32_t slot = 0;  // of the job's allocation
    auto operator<=>(const GpuSource&) const = default;
};

struct RankGpu {
    std::uint32_t rank = 0;
    double memory_bytes = kGpuUnknown;  // the rank's share of it
    const GpuSample* gpu = nullptr;     // never null
};

class GpuTable {
  public:
    struct Look {
        std::string node;
        double received = 0;  // the daemon's clock, seconds since the Unix epoch
        GpuBatch batch;
        // node="…",gpu="…" of each of batch.gpus: made once and not for every scrape.
        std::vector<std::string> labels;
    };

    void take(GpuSource source, std::string_view node, GpuBatch batch, double received);
    // The look of every source that is not too old, the newest first.
    std::vector<const Look*> fresh(double now) const;
    // The same with where each comes from, by job and slot.
    template <class Take>
    void each_fresh(double now, const Take& take_one) const {
        for (const auto& [source, look] : looks_) {
            if (now - look.received <= limits::kGpuFreshSeconds) {
                take_one(source, look);
            }
        }
    }
    // Who of a job uses which GPU, by rank and GPU; ranks are not checked. Valid until take().
    std::vector<RankGpu> ranks(std::string_view job, double now) const;

  private:
    // Looks too old to be shown again go when others come.
    void sweep(double now);

    std::map<GpuSource, Look> looks_;
    double swept_ = 0;
};

// node="…",gpu="…"
std::string gpu_labels(std::string_view node, std::uint32_t gpu);

// Those of one rank among those of its job.
std::span<const RankGpu> gpus_of(const std::vector<RankGpu>& ranks, std::int32_t rank);

}  // namespace lockstep::telemetry
