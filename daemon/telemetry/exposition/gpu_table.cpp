#include "daemon/telemetry/exposition/gpu_table.hpp"

#include "daemon/telemetry/exposition/metric_text.hpp"
#include "job/base/sort.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::telemetry {
namespace {

bool is_fresh(const GpuTable::Look& look, double now) {
    return now - look.received <= limits::kGpuFreshSeconds;
}

}  // namespace

std::string gpu_labels(std::string_view node, std::uint32_t gpu) {
    std::string out;
    add_label(out, "node", node);
    add_label(out, "gpu", std::to_string(gpu));
    return out;
}

void GpuTable::take(GpuSource source, std::string_view node, GpuBatch batch, double received) {
    sweep(received);
    Look& look = looks_[std::move(source)];
    const auto same_gpu = [](const GpuSample& a, const GpuSample& b) { return a.gpu == b.gpu; };
    const bool known = look.node == node && look.labels.size() == batch.gpus.size() &&
                       std::equal(look.batch.gpus.begin(), look.batch.gpus.end(),
                                  batch.gpus.begin(), batch.gpus.end(), same_gpu);
    if (!known) {
        std::vector<std::string> labels;
        labels.reserve(batch.gpus.size());
        for (const GpuSample& gpu : batch.gpus) {
            labels.push_back(gpu_labels(node, gpu.gpu));
        }
        look.node = node;
        look.labels = std::move(labels);
    }
    look.received = received;
    look.batch = std::move(batch);
}

void GpuTable::sweep(double now) {
    if (now - swept_ < limits::kGpuFreshSeconds && now >= swept_) {
        return;
    }
    swept_ = now;
    std::erase_if(looks_, [now](const auto& entry) { return !is_fresh(entry.second, now); });
}

std::vector<const GpuTable::Look*> GpuTable::fresh(double now) const {
    std::vector<const Look*> out;
    for (const auto& [source, look] : looks_) {
        if (is_fresh(look, now)) {
            out.push_back(&look);
        }
    }
    sort_stably(out, [](const Look* a, const Look* b) { return a->received > b->received; });
    return out;
}

std::vector<RankGpu> GpuTable::ranks(std::string_view job, double now) const {
    std::vector<RankGpu> out;
    for (auto it = looks_.lower_bound({std::string{job}, 0});
         it != looks_.end() && it->first.job == job; ++it) {
        const GpuBatch& batch = it->second.batch;
        for (const GpuUse& use : batch.uses) {
            const auto gpu = std::find_if(batch.gpus.begin(), batch.gpus.end(),
                                          [&use](const auto& one) { return one.gpu == use.gpu; });
            if (gpu != batch.gpus.end() && is_fresh(it->second, now)) {
                out.push_back({use.rank, use.memory_bytes, &*gpu});
            }
        }
    }
    std::sort(out.begin(), out.end(), [](const RankGpu& a, const RankGpu& b) {
        return std::pair{a.rank, a.gpu->gpu} < std::pair{b.rank, b.gpu->gpu};
    });
    return out;
}

std::span<const RankGpu> gpus_of(const std::vector<RankGpu>& ranks, std::int32_t rank) {
    RankGpu key;
    key.rank = static_cast<std::uint32_t>(rank);
    const auto [begin, end] =
        std::equal_range(ranks.begin(), ranks.end(), key,
                         [](const RankGpu& a, const RankGpu& b) { return a.rank < b.rank; });
    return {begin, end};
}

}  // namespace lockstep::telemetry
