#include "job/model/wire/gpu_batch.hpp"

#include "job/base/limits.hpp"
#include "job/model/wire/batch.hpp"
#include "job/model/wire/flat_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::uint32_t kGpuBatchMagic = 0x3147534C;
constexpr std::uint16_t kGpuBatchVersion1 = 1;
constexpr auto kGpusMost = static_cast<std::size_t>(limits::kGpusPerNode);
// Twice what this version knows: a newer agent may know more.
constexpr std::size_t kColumns = 2 * kGpuMetrics;

constexpr std::array<std::string GpuSample::*, 4> kTexts{
    &GpuSample::uuid, &GpuSample::model, &GpuSample::driver, &GpuSample::pci_bus_id};

void put_text(std::string& out, std::string_view text) {
    text = text.substr(0, limits::kGpuTextBytes);
    put_flat(out, static_cast<std::uint8_t>(text.size()));
    out += text;
}

bool get_text(FlatReader& in, std::string& text) {
    std::uint8_t size = 0;
    return in.get(size) && size <= limits::kGpuTextBytes && in.get_text(text, size);
}

struct Counts {
    std::uint16_t columns = 0;
    std::uint32_t gpus = 0;
    std::uint32_t uses = 0;
    std::uint32_t xids = 0;
};

Result<Counts> take_header(FlatReader& in, GpuBatch& batch) {
    std::uint32_t magic = 0;
    std::uint16_t version = 0;
    Counts counts;
    if (!in.get(magic) || !in.get(version) || magic != kGpuBatchMagic ||
        version != kGpuBatchVersion1) {
        return fail(Errc::invalid, "GPU frame: not of version 1");
    }
    if (!in.get(counts.columns) || !in.get(batch.node_rank) || !in.get(batch.time) ||
        !in.get(counts.gpus) || !in.get(counts.uses) || !in.get(counts.xids)) {
        return fail(Errc::invalid, "GPU frame: truncated header");
    }
    if (counts.columns > kColumns || counts.gpus > kGpusMost || counts.uses > limits::kGpuUses ||
        counts.xids > limits::kGpuXids || !std::isfinite(batch.time)) {
        return fail(Errc::invalid, "GPU frame: too much of something");
    }
    return counts;
}

bool take_gpus(FlatReader& in, std::size_t count, GpuBatch& batch) {
    for (std::size_t i = 0; i < count; ++i) {
        GpuSample gpu;
        bool good = in.get(gpu.gpu);
        for (const auto text : kTexts) {
            good = good && get_text(in, gpu.*text);
        }
        const auto same = [&gpu](const GpuSample& other) { return other.gpu == gpu.gpu; };
        if (!good || std::any_of(batch.gpus.begin(), batch.gpus.end(), same)) {
            return false;
        }
        batch.gpus.push_back(std::move(gpu));
    }
    return true;
}

bool take_lists(FlatReader& in, const Counts& counts, GpuBatch& batch) {
    for (std::uint32_t i = 0; i < counts.uses; ++i) {
        GpuUse use;
        if (!in.get(use.rank) || !in.get(use.gpu) || !in.get(use.memory_bytes)) {
            return false;
        }
        batch.uses.push_back(use);
    }
    for (std::uint32_t i = 0; i < counts.xids; ++i) {
        GpuXidSeen seen;
        if (!in.get(seen.gpu) || !in.get(seen.xid) || !in.get(seen.time)) {
            return false;
        }
        batch.xids.push_back(seen);
    }
    const auto order = [](const GpuUse& a, const GpuUse& b) {
        return std::pair{a.rank, a.gpu} < std::pair{b.rank, b.gpu};
    };
    std::sort(batch.uses.begin(), batch.uses.end(), order);
    return true;
}

bool take_columns(FlatReader& in, std::size_t count, GpuBatch& batch) {
    std::vector<std::string> names;
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i) {
        std::string name;
        if (!get_text(in, name) || !is_metric_name(name) ||
            std::find(names.begin(), names.end(), name) != names.end() ||
            !in.get_all(values, batch.gpus.size())) {
            return false;
        }
        const auto known = std::find(kGpuMetricKeys.begin(), kGpuMetricKeys.end(), name);
        names.push_back(std::move(name));
        if (known == kGpuMetricKeys.end()) {
            continue;
        }
        const auto metric = static_cast<std::size_t>(known - kGpuMetricKeys.begin());
        for (std::size_t gpu = 0; gpu < values.size(); ++gpu) {
            batch.gpus[gpu].values[metric] = std::isfinite(values[gpu]) ? values[gpu] : kGpuUnknown;
        }
    }
    return true;
}

}  // namespace

bool is_gpu_batch(std::string_view bytes) {
    return bytes.size() >= sizeof kGpuBatchMagic &&
           std::memcmp(bytes.data(), &kGpuBatchMagic, sizeof kGpuBatchMagic) == 0;
}

std::string encode_gpu_batch(const GpuBatch& batch) {
    const std::size_t gpus = std::min(batch.gpus.size(), kGpusMost);
    const std::size_t uses = std::min(batch.uses.size(), limits::kGpuUses);
    const std::size_t xids = std::min(batch.xids.size(), limits::kGpuXids);
    std::vector<std::size_t> shown;  // what no GPU knows is not sent
    for (std::size_t metric = 0; metric < kGpuMetrics; ++metric) {
        if (std::any_of(batch.gpus.begin(), batch.gpus.end(), [metric](const GpuSample& gpu) {
                return !std::isnan(gpu.values[metric]);
            })) {
            shown.push_back(metric);
        }
    }
    std::string out;
    out.reserve(36 + gpus * 160 + uses * 16 + xids * 16 + shown.size() * (32 + gpus * 8));
    put_flat(out, kGpuBatchMagic);
    put_flat(out, kGpuBatchVersion1);
    put_flat(out, static_cast<std::uint16_t>(shown.size()));
    put_flat(out, batch.node_rank);
    put_flat(out, batch.time);
    put_flat(out, static_cast<std::uint32_t>(gpus));
    put_flat(out, static_cast<std::uint32_t>(uses));
    put_flat(out, static_cast<std::uint32_t>(xids));
    for (std::size_t i = 0; i < gpus; ++i) {
        put_flat(out, batch.gpus[i].gpu);
        for (const auto text : kTexts) {
            put_text(out, batch.gpus[i].*text);
        }
    }
    for (std::size_t i = 0; i < uses; ++i) {
        put_flat(out, batch.uses[i].rank);
        put_flat(out, batch.uses[i].gpu);
        put_flat(out, batch.uses[i].memory_bytes);
    }
    for (std::size_t i = 0; i < xids; ++i) {
        put_flat(out, batch.xids[i].gpu);
        put_flat(out, batch.xids[i].xid);
        put_flat(out, batch.xids[i].time);
    }
    for (const std::size_t metric : shown) {
        put_text(out, kGpuMetricKeys[metric]);
        for (std::size_t i = 0; i < gpus; ++i) {
            put_flat(out, batch.gpus[i].values[metric]);
        }
    }
    return out;
}

Result<GpuBatch> decode_gpu_batch(std::string_view bytes) {
    FlatReader in{bytes};
    GpuBatch batch;
    const auto counts = take_header(in, batch);
    LOCKSTEP_TRY(counts);
    if (!take_gpus(in, counts->gpus, batch)) {
        return fail(Errc::invalid, "GPU frame: truncated or repeated GPUs");
    }
    if (!take_lists(in, *counts, batch)) {
        return fail(Errc::invalid, "GPU frame: truncated lists");
    }
    if (!take_columns(in, counts->columns, batch)) {
        return fail(Errc::invalid, "GPU frame: a truncated, bad or repeated column");
    }
    if (!in.done()) {
        return fail(Errc::invalid, "GPU frame: trailing bytes");
    }
    return batch;
}

}  // namespace lockstep
