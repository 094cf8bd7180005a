#include "daemon/telemetry/series/gpu_history.hpp"

#include "job/base/limits.hpp"
#include "job/base/number.hpp"
#include "job/base/text.hpp"
#include "job/model/wire/flat_bytes.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

namespace lockstep::telemetry {
namespace {

using enum GpuMetric;

// Not here: what changes hardly ever and is an event when it does, and what only /metrics needs.
constexpr std::array kGpuKept{utilization,
                              sm_active,
                              sm_occupancy,
                              tensor_active,
                              dram_active,
                              memory_used,
                              memory_total,
                              energy,
                              power,
                              power_limit,
                              temperature_core,
                              temperature_memory,
                              clock_sm,
                              clock_memory,
                              throttle_sw_power,
                              throttle_sync_boost,
                              throttle_sw_thermal,
                              throttle_hw_thermal,
                              throttle_hw_power_brake,
                              pcie_sent,
                              pcie_received,
                              nvlink_sent,
                              nvlink_received,
                              ecc_corrected,
                              ecc_uncorrected};

constexpr std::uint32_t kGpuRowsMagic = 0x4847534C;  // "LSGH"
constexpr std::string_view kGpuPrefix = "gpu_";
constexpr std::string_view kGpuLine = "gpus ";
constexpr double kGpuLookSeconds = 0.5;  // looks of a node nearer than that are not kept
constexpr double kGpuLatest = 1e12;      // as batch.hpp has it

// As a host's name: a line of text is to hold it, and one of CSV.
bool is_plain_name(std::string_view name) {
    return !name.empty() && name.size() <= 255 &&
           std::none_of(name.begin(), name.end(), [](char c) {
               return static_cast<unsigned char>(c) <= ' ' || c == 0x7F || c == ',' || c == '"';
           });
}

// The uses of one GPU among all, which are by GPU.
std::vector<std::uint32_t> ranks_on(const std::vector<GpuUse>& uses, std::uint32_t gpu) {
    std::vector<std::uint32_t> out;
    const auto before = [](const GpuUse& use, std::uint32_t number) { return use.gpu < number; };
    for (auto use = std::lower_bound(uses.begin(), uses.end(), gpu, before);
         use != uses.end() && use->gpu == gpu && out.size() < limits::kRanksOfGpu; ++use) {
        if (out.empty() || out.back() != use->rank) {
            out.push_back(use->rank);
        }
    }
    return out;
}

template <class T>
bool take_decimal(std::string_view& in, T& value) {
    const auto read = std::from_chars(in.data(), in.data() + in.size(), value);
    if (read.ec != std::errc{}) {
        return false;
    }
    in.remove_prefix(static_cast<std::size_t>(read.ptr - in.data()));
    return true;
}

bool take_char(std::string_view& in, char expected) {
    if (in.empty() || in.front() != expected) {
        return false;
    }
    in.remove_prefix(1);
    return true;
}

}  // namespace

const std::vector<std::string>& gpu_history_metrics() {
    static const std::vector<std::string> kNames = [] {
        std::vector<std::string> names;
        names.reserve(kGpuKept.size());
        for (const GpuMetric metric : kGpuKept) {
            names.push_back(std::string{kGpuPrefix}.append(kGpuMetricKeys[index(metric)]));
        }
        return names;
    }();
    return kNames;
}

bool gpu_low_is_worse(std::string_view metric) {
    return metric == "gpu_utilization_ratio" || metric.ends_with("_active_ratio") ||
           metric.ends_with("_occupancy_ratio") || metric == "gpu_power_watts" ||
           metric.starts_with("gpu_clock_") || metric.ends_with("_sent_bytes") ||
           metric.ends_with("_received_bytes");
}

std::optional<GpuRows> make_gpu_rows(std::string_view node, const GpuBatch& look,
                                     std::uint32_t generation, const StepOf& step_of) {
    const bool timely = look.time >= 0 && look.time <= kGpuLatest;
    if (look.gpus.empty() || !timely || !is_plain_name(node)) {
        return std::nullopt;
    }
    GpuRows out;
    out.node = node;
    out.uses = look.uses;
    std::sort(out.uses.begin(), out.uses.end(), [](const GpuUse& a, const GpuUse& b) {
        return std::pair{a.gpu, a.rank} < std::pair{b.gpu, b.rank};
    });
    out.batch.generation = generation;
    out.batch.node_rank = look.node_rank;
    for (const GpuSample& gpu : look.gpus) {
        out.batch.add_row(gpu.gpu, step_of(ranks_on(out.uses, gpu.gpu)), look.time);
        for (std::size_t i = 0; i < kGpuKept.size(); ++i) {
            if (const double value = gpu[kGpuKept[i]]; std::isfinite(value)) {
                out.batch.set(gpu_history_metrics()[i], value);
            }
        }
    }
    return out;
}

std::size_t kept_gpu_values(const GpuBatch& look) {
    std::size_t out = 0;
    for (const GpuSample& gpu : look.gpus) {
        out += static_cast<std::size_t>(
            std::count_if(kGpuKept.begin(), kGpuKept.end(),
                          [&gpu](GpuMetric metric) { return std::isfinite(gpu[metric]); }));
    }
    return out;
}

std::string encode_gpu_rows(const GpuRows& rows) {
    std::string out;
    put_flat(out, kGpuRowsMagic);
    put_flat(out, static_cast<std::uint8_t>(rows.node.size()));
    out += rows.node;
    put_flat(out, static_cast<std::uint32_t>(rows.uses.size()));
    for (const GpuUse& use : rows.uses) {
        put_flat(out, use.rank);
        put_flat(out, use.gpu);
    }
    return out + encode_batch(rows.batch);
}

bool is_gpu_rows(std::string_view bytes) {
    std::uint32_t magic = 0;
    return take_flat(bytes, magic) && magic == kGpuRowsMagic;
}

Result<GpuRows> decode_gpu_rows(std::string_view bytes) {
    const Error damaged{Errc::invalid, "a GPU's rows: truncated"};
    std::uint32_t magic = 0;
    std::uint8_t length = 0;
    if (!take_flat(bytes, magic) || magic != kGpuRowsMagic || !take_flat(bytes, length) ||
        bytes.size() < length) {
        return fail(damaged);
    }
    GpuRows out;
    out.node = bytes.substr(0, length);
    bytes.remove_prefix(length);
    std::uint32_t uses = 0;
    if (!take_flat(bytes, uses) || uses > limits::kGpuUses || !is_plain_name(out.node)) {
        return fail(damaged);
    }
    for (std::uint32_t i = 0; i < uses; ++i) {
        GpuUse use;
        if (!take_flat(bytes, use.rank) || !take_flat(bytes, use.gpu)) {
            return fail(damaged);
        }
        out.uses.push_back(use);
    }
    auto batch = decode_batch(bytes);
    LOCKSTEP_TRY(batch);
    out.batch = std::move(*batch);
    return out;
}

std::vector<std::uint32_t> GpuDirectory::used_by(const std::vector<std::int32_t>& ranks) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t id = 0; id < gpus_.size(); ++id) {
        const auto& users = gpus_[id].ranks;
        if (std::any_of(users.begin(), users.end(), [&](std::uint32_t user) {
                return std::binary_search(ranks.begin(), ranks.end(),
                                          static_cast<std::int32_t>(user));
            })) {
            out.push_back(id);
        }
    }
    return out;
}

std::optional<std::uint32_t> GpuDirectory::node_index(std::string_view node) const {
    const auto known = node_ids_.find(node);
    return known == node_ids_.end() ? std::nullopt : std::optional{known->second};
}

std::optional<std::uint32_t> GpuDirectory::find(std::string_view node, std::uint32_t gpu) const {
    const auto known = node_index(node);
    if (!known) {
        return std::nullopt;
    }
    const auto& ids = of_node_[*known];
    const auto at =
        std::find_if(ids.begin(), ids.end(), [&](auto id) { return gpus_[id].gpu == gpu; });
    return at == ids.end() ? std::nullopt : std::optional{*at};
}

std::uint32_t GpuDirectory::node(std::string_view name) {
    if (const auto known = node_index(name)) {
        return *known;
    }
    const auto made = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back(name);
    node_ids_.emplace(nodes_.back(), made);
    of_node_.emplace_back();
    return made;
}

std::optional<std::uint32_t> GpuDirectory::add(std::string_view name, std::uint32_t gpu) {
    if (const auto known = find(name, gpu)) {
        return known;
    }
    if (gpus_.size() >= limits::kGpusOfJob) {
        return std::nullopt;
    }
    const auto id = static_cast<std::uint32_t>(gpus_.size());
    const std::uint32_t at = node(name);
    gpus_.push_back({at, gpu, {}});
    of_node_[at].push_back(id);
    return id;
}

std::string GpuDirectory::text() const {
    std::string out;
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
        out += kGpuLine;
        for (const std::uint32_t id : of_node_[node]) {
            const Gpu& one = gpus_[id];
            out += id == of_node_[node].front() ? "" : ",";
            out += std::to_string(id) + ":" + std::to_string(one.gpu) + ":";
            for (const std::uint32_t rank : one.ranks) {
                out += rank == one.ranks.front() ? "" : "+";
                out += std::to_string(rank);
            }
        }
        out += " " + nodes_[node] + "\n";
    }
    return out;
}

// Ids come in any order over the lines, and after the last line without a gap.
bool GpuDirectory::take_line(std::string_view line) {
    const std::size_t end = line.rfind(' ');
    if (!line.starts_with(kGpuLine) || end == std::string_view::npos || end < kGpuLine.size() ||
        !is_plain_name(line.substr(end + 1))) {
        return false;
    }
    const std::uint32_t at = node(line.substr(end + 1));
    line = line.substr(kGpuLine.size(), end - kGpuLine.size());
    do {
        std::uint32_t id = 0;
        Gpu one;
        one.node = at;
        if (!take_decimal(line, id) || id >= limits::kGpusOfJob || !take_char(line, ':') ||
            !take_decimal(line, one.gpu) || !take_char(line, ':')) {
            return false;
        }
        while (!line.empty() && line.front() != ',') {
            std::uint32_t rank = 0;
            if (one.ranks.size() >= limits::kRanksOfGpu || !take_decimal(line, rank)) {
                return false;
            }
            one.ranks.push_back(rank);
            take_char(line, '+');
        }
        if (gpus_.size() <= id) {
            gpus_.resize(std::size_t{id} + 1);
        }
        gpus_[id] = std::move(one);
        of_node_[at].push_back(id);
    } while (take_char(line, ','));
    return line.empty();
}

std::size_t GpuDirectory::bytes() const {
    return gpus_.size() * (sizeof(Gpu) + 3 * sizeof(std::uint32_t)) +
           nodes_.size() * (4 * sizeof(std::string) + 2 * sizeof(void*));
}

GpuDirectory& GpuHistory::mutable_directory() {
    if (std::exchange(shared_, false)) {
        directory_ = std::make_shared<GpuDirectory>(*directory_);
    }
    return *directory_;
}

bool GpuHistory::take_turn(std::string_view node, double now) {
    const auto at = directory_->node_index(node);
    if (!at) {
        return true;
    }
    const double wanted =
        static_cast<double>(directory_->size() * kGpuKept.size()) / limits::kGpuSamplesPerSecond;
    // Nodes take their turns at different times: a node's number says when.
    constexpr double kGolden = 0.6180339887498949;
    const double phase = std::fmod(*at * kGolden, 1.0);
    const auto slot =
        static_cast<std::int64_t>(std::floor(now / std::max(wanted, kGpuLookSeconds) + phase));
    if (slots_.size() <= *at) {
        slots_.resize(std::size_t{*at} + 1, -1);
    }
    return std::exchange(slots_[*at], slot) != slot;
}

std::vector<std::string> GpuHistory::metrics() const {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
        if (seen_[i]) {
            out.push_back(gpu_history_metrics()[i]);
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::size_t GpuHistory::add(const GpuRows& rows, std::int32_t attempt, double now,
                            History& history) {
    const Batch& batch = rows.batch;
    std::vector<const BatchColumn*> columns;
    for (const std::string& name : gpu_history_metrics()) {
        columns.push_back(batch.find(name));
    }
    std::vector<double> values(columns.size());
    seen_.resize(columns.size());
    std::size_t added = 0;
    for (std::size_t row = 0; row < batch.rows(); ++row) {
        auto id = directory_->find(rows.node, batch.ranks[row]);
        if (!id) {
            id = mutable_directory().add(rows.node, batch.ranks[row]);
        }
        if (!id) {
            continue;
        }
        // Ranks that have ended are still those that it was for.
        auto ranks = ranks_on(rows.uses, batch.ranks[row]);
        if (!ranks.empty() && ranks != directory_->at(*id).ranks) {
            mutable_directory().set_ranks(*id, std::move(ranks));
        }
        for (std::size_t i = 0; i < columns.size(); ++i) {
            const bool there = columns[i] != nullptr && columns[i]->present[row] != 0 &&
                               std::isfinite(columns[i]->values[row]);
            values[i] = there ? columns[i]->values[row] : kAbsent;
            seen_[i] = seen_[i] || there;
        }
        history.add({attempt, batch.generation}, *id, batch.steps[row], batch.times[row], values,
                    now, EntityKind::gpu);
        ++added;
    }
    return added;
}

}  // namespace lockstep::telemetry
