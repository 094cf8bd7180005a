#include "daemon/telemetry/exposition/gpu_exposition.hpp"

#include "daemon/telemetry/exposition/gpu_owners.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lockstep::telemetry {
namespace {

struct GpuRow {
    GpuMetric metric;
    std::string_view family;  // without _total
    MetricType type;
    std::string_view help;
    std::string_view label{};  // name and value of one more label
    std::string_view value{};
    bool slim = false;
};

using enum GpuMetric;
constexpr auto kGauge = MetricType::gauge;
constexpr auto kCounter = MetricType::counter;

constexpr std::size_t kGpuSampleBytes = 80;  // bytes of a sample beside its GPU's labels, at most
constexpr std::size_t kInfoLabels = 192;     // of lockstep_gpu_info, about

constexpr std::string_view kTemperature = "Temperature by sensor.";
constexpr std::string_view kClock = "Clock rate by domain.";
constexpr std::string_view kThrottle = "Time with lowered clocks, by reason.";
constexpr std::string_view kPcie = "Bytes over PCIe as seen from the GPU.";
constexpr std::string_view kNvlink = "Bytes over all NVLinks as seen from the GPU.";
constexpr std::string_view kNvlinkErrors = "Errors of all NVLinks, by kind.";
constexpr std::string_view kEcc = "ECC errors of memory since the driver was loaded.";
constexpr std::string_view kRows = "Rows of memory replaced for good.";

// One family's rows follow one another.
constexpr std::array<GpuRow, kGpuMetrics> kRowsOfBody{{
    {utilization,
     "lockstep_gpu_utilization_ratio",
     kGauge,
     "Share of time with a kernel on the GPU; one that waits counts.",
     {},
     {},
     true},
    {sm_active,
     "lockstep_gpu_sm_active_ratio",
     kGauge,
     "Share of time and multiprocessors with a warp.",
     {},
     {},
     true},
    {sm_occupancy, "lockstep_gpu_sm_occupancy_ratio", kGauge,
     "Resident warps of those that would fit."},
    {tensor_active,
     "lockstep_gpu_tensor_active_ratio",
     kGauge,
     "Share of time the tensor cores worked.",
     {},
     {},
     true},
    {dram_active,
     "lockstep_gpu_dram_active_ratio",
     kGauge,
     "Share of the memory bandwidth in use.",
     {},
     {},
     true},
    {memory_used, "lockstep_gpu_memory_used_bytes", kGauge, "Memory in use.", {}, {}, true},
    {memory_total, "lockstep_gpu_memory_total_bytes", kGauge, "Memory it has.", {}, {}, true},
    {energy,
     "lockstep_gpu_energy_joules",
     kCounter,
     "Energy since the driver was loaded.",
     {},
     {},
     true},
    {power, "lockstep_gpu_power_watts", kGauge, "Power draw.", {}, {}, true},
    {power_limit, "lockstep_gpu_power_limit_watts", kGauge, "Power it may draw."},
    {temperature_core, "lockstep_gpu_temperature_celsius", kGauge, kTemperature, "sensor", "core",
     true},
    {temperature_memory, "lockstep_gpu_temperature_celsius", kGauge, kTemperature, "sensor",
     "memory", true},
    {clock_sm, "lockstep_gpu_clock_hertz", kGauge, kClock, "domain", "sm", true},
    {clock_memory, "lockstep_gpu_clock_hertz", kGauge, kClock, "domain", "memory"},
    {throttle_sw_power, "lockstep_gpu_throttle_seconds", kCounter, kThrottle, "reason", "sw_power"},
    {throttle_sync_boost, "lockstep_gpu_throttle_seconds", kCounter, kThrottle, "reason",
     "sync_boost"},
    {throttle_sw_thermal, "lockstep_gpu_throttle_seconds", kCounter, kThrottle, "reason",
     "sw_thermal", true},
    {throttle_hw_thermal, "lockstep_gpu_throttle_seconds", kCounter, kThrottle, "reason",
     "hw_thermal", true},
    {throttle_hw_power_brake, "lockstep_gpu_throttle_seconds", kCounter, kThrottle, "reason",
     "hw_power_brake", true},
    {pcie_sent, "lockstep_gpu_pcie_bytes", kCounter, kPcie, "direction", "tx"},
    {pcie_received, "lockstep_gpu_pcie_bytes", kCounter, kPcie, "direction", "rx"},
    {pcie_replays, "lockstep_gpu_pcie_replays", kCounter, "Packets sent again over PCIe."},
    {nvlink_sent, "lockstep_gpu_nvlink_bytes", kCounter, kNvlink, "direction", "tx"},
    {nvlink_received, "lockstep_gpu_nvlink_bytes", kCounter, kNvlink, "direction", "rx"},
    {nvlink_recovery, "lockstep_gpu_nvlink_errors", kCounter, kNvlinkErrors, "kind", "recovery",
     true},
    {nvlink_ecc, "lockstep_gpu_nvlink_errors", kCounter, kNvlinkErrors, "kind", "ecc"},
    {nvlink_remote, "lockstep_gpu_nvlink_errors", kCounter, kNvlinkErrors, "kind", "remote"},
    {nvlink_general, "lockstep_gpu_nvlink_errors", kCounter, kNvlinkErrors, "kind", "general"},
    {nvlink_integrity, "lockstep_gpu_nvlink_errors", kCounter, kNvlinkErrors, "kind", "integrity"},
    {nvlink_discard, "lockstep_gpu_nvlink_errors", kCounter, kNvlinkErrors, "kind", "discard"},
    {nvlink_recovery_failed, "lockstep_gpu_nvlink_errors", kCounter, kNvlinkErrors, "kind",
     "recovery_failed"},
    {ecc_corrected, "lockstep_gpu_ecc_errors", kCounter, kEcc, "type", "corrected"},
    {ecc_uncorrected, "lockstep_gpu_ecc_errors", kCounter, kEcc, "type", "uncorrected", true},
    {remapped_corrected, "lockstep_gpu_remapped_rows", kCounter, kRows, "type", "corrected"},
    {remapped_uncorrected, "lockstep_gpu_remapped_rows", kCounter, kRows, "type", "uncorrected"},
    {row_remap_pending,
     "lockstep_gpu_row_remap_pending",
     kGauge,
     "1: a row is replaced at the next reset.",
     {},
     {},
     true},
    {row_remap_failure,
     "lockstep_gpu_row_remap_failure",
     kGauge,
     "1: a row could not be replaced.",
     {},
     {},
     true},
    {recovery_action,
     "lockstep_gpu_recovery_action",
     kGauge,
     "What the driver asks for: 0 none, 1 reset, 2 reboot, 3 drain peers, 4 drain and reset, 5 "
     "IMEX.",
     {},
     {},
     true},
}};

static_assert(static_cast<std::size_t>(std::count_if(kRowsOfBody.begin(), kRowsOfBody.end(),
                                                     [](const GpuRow& row) { return row.slim; })) ==
              kSlimGpuMetrics);

// Those of one GPU, lockstep_gpu_info included.
std::size_t series_of(const GpuSample& gpu) {
    return 1 + static_cast<std::size_t>(
                   std::count_if(kRowsOfBody.begin(), kRowsOfBody.end(),
                                 [&](const GpuRow& row) { return !std::isnan(gpu[row.metric]); }));
}

// Which nodes more than one look is of.
std::set<std::string_view> nodes_of_several(const std::vector<const GpuTable::Look*>& looks) {
    std::unordered_set<std::string_view> once;
    std::set<std::string_view> out;
    for (const GpuTable::Look* look : looks) {
        if (!once.insert(look->node).second) {
            out.insert(look->node);
        }
    }
    return out;
}

// Each once, then; an agent of another version may say what it wants.
bool ascend(const std::vector<GpuSample>& gpus) {
    return std::adjacent_find(gpus.begin(), gpus.end(), [](const GpuSample& a, const GpuSample& b) {
               return a.gpu >= b.gpu;
           }) == gpus.end();
}

// What the slim profile leaves out of a GPU.
std::size_t hidden_of(const GpuSample& gpu) {
    return static_cast<std::size_t>(std::count_if(
        kRowsOfBody.begin(), kRowsOfBody.end(),
        [&](const GpuRow& row) { return !row.slim && !std::isnan(gpu[row.metric]); }));
}

// `owners`: of the GPUs of some jobs; nullptr = every GPU. Of those the ones in `shard`; without
// one at most limits::kGpusShown. What is left out is counted in part 0, which says it.
ShownGpus collect(const GpuTable& table, double now, const GpuOwners* owners,
                  std::optional<Shard> part) {
    const Shard shard = part.value_or(Shard{});
    ShownGpus out;
    std::set<GpuPlace> seen;
    std::map<std::string, double> xids;
    std::size_t all = 0;     // GPUs, of every part
    std::size_t hidden = 0;  // series that the slim profile leaves out
    const auto slot_of = [owners](std::string_view node,
                                  std::uint32_t gpu) -> std::optional<std::size_t> {
        return owners == nullptr ? std::size_t{0} : owners->slot_of(node, gpu);
    };
    const auto looks = table.fresh(now);
    const auto several = nodes_of_several(looks);
    for (const GpuTable::Look* look : looks) {
        // A page of one job must not cost a walk over the GPUs of all.
        if (owners != nullptr && !owners->has_node(look->node)) {
            continue;
        }
        const bool twice = several.contains(look->node) || !ascend(look->batch.gpus);
        for (std::size_t i = 0; i < look->batch.gpus.size(); ++i) {
            const GpuSample& gpu = look->batch.gpus[i];
            const auto slot = slot_of(look->node, gpu.gpu);
            if (!slot || (twice && !seen.emplace(look->node, gpu.gpu).second)) {
                continue;
            }
            // A job's own page is asked for part by part.
            if (!part && all == limits::kGpusShown) {
                out.suppressed += series_of(gpu);
                continue;
            }
            ++all;
            hidden += shard.index == 0 ? hidden_of(gpu) : 0;
            if (shard.has(*slot)) {
                out.labels += look->labels[i];
                out.gpus.push_back({out.labels.size(), &gpu});
            }
        }
        for (const GpuXidSeen& xid : look->batch.xids) {
            const auto slot = slot_of(look->node, xid.gpu);
            if (!slot || !shard.has(*slot)) {
                continue;
            }
            std::string labels = gpu_labels(look->node, xid.gpu);
            add_label(labels, "xid", std::to_string(xid.xid));
            double& time = xids[std::move(labels)];
            time = std::max(time, xid.time);
        }
    }
    for (const auto& [labels, time] : xids) {
        if (out.xids.size() < limits::kGpusShown) {
            out.xids.push_back({labels, time});
        } else {
            ++out.suppressed;
        }
    }
    out.slim = all > limits::kGpusShownInFull;
    out.suppressed += out.slim ? hidden : 0;
    return out;
}

}  // namespace

std::size_t ShownGpus::expected_size() const {
    const std::size_t series = slim ? kSlimGpuMetrics : kGpuMetrics;
    return (series + 1) * labels.size() + gpus.size() * (series * kGpuSampleBytes + kInfoLabels) +
           xids.size() * 2 * kGpuSampleBytes;
}

ShownGpus shown_gpus(const GpuTable& table, double now, const JobFilter& jobs) {
    if (!jobs) {
        return collect(table, now, nullptr, std::nullopt);
    }
    const GpuOwners owners{table, now, jobs};
    return collect(table, now, &owners, std::nullopt);
}

ShownGpus job_gpus(const GpuTable& table, double now, std::string_view job, Shard shard) {
    const GpuOwners owners{table, now, [job](std::string_view one) { return one == job; }};
    return collect(table, now, &owners, shard);
}

namespace {

// Calls `take` with the labels and the place of each.
template <class Take>
void each_gpu(const ShownGpus& shown, const Take& take) {
    const std::string_view labels = shown.labels;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < shown.gpus.size(); ++i) {
        take(labels.substr(begin, shown.gpus[i].labels_end - begin), i);
        begin = shown.gpus[i].labels_end;
    }
}

// What each row of the body shows of each GPU, row by row. Looks lie all over the memory: they are
// walked over once and not for every row.
std::vector<double> values_by_row(const ShownGpus& shown) {
    const std::size_t count = shown.gpus.size();
    std::vector<double> out((shown.slim ? kSlimGpuMetrics : kGpuMetrics) * count);
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t to = i;
        for (const GpuRow& row : kRowsOfBody) {
            if (!shown.slim || row.slim) {
                out[to] = (*shown.gpus[i].sample)[row.metric];
                to += count;
            }
        }
    }
    return out;
}

}  // namespace

void write_gpus(MetricText& text, const ShownGpus& shown) {
    text.family("lockstep_gpu", MetricType::info, "Always 1; the labels say what the GPU is.");
    std::string labels;
    each_gpu(shown, [&](std::string_view place, std::size_t i) {
        const GpuSample& gpu = *shown.gpus[i].sample;
        labels = place;
        add_label(labels, "uuid", gpu.uuid);
        add_label(labels, "model", gpu.model);
        add_label(labels, "driver", gpu.driver);
        add_label(labels, "pci_bus_id", gpu.pci_bus_id);
        text.sample(labels, std::uint64_t{1});
    });
    const std::vector<double> values = values_by_row(shown);
    std::string_view family;
    std::string own;  // the row's own label
    const double* next_row = values.data();
    for (const GpuRow& row : kRowsOfBody) {
        if (shown.slim && !row.slim) {
            continue;
        }
        const double* of_row = next_row;
        next_row += shown.gpus.size();
        if (row.family != family) {
            family = row.family;
            text.family(row.family, row.type, row.help);
        }
        own.clear();
        if (!row.label.empty()) {
            add_label(own, row.label, row.value);
            own.insert(0, 1, ',');
        }
        each_gpu(shown, [&](std::string_view place, std::size_t i) {
            if (std::isnan(of_row[i])) {
                return;
            }
            if (own.empty()) {
                text.sample(place, of_row[i]);
            } else {
                labels = place;
                labels += own;
                text.sample(labels, of_row[i]);
            }
        });
    }
    text.family("lockstep_gpu_xid_last_timestamp_seconds", MetricType::gauge,
                "The newest critical error with this number, seconds since the Unix epoch.");
    for (const auto& xid : shown.xids) {
        text.sample(xid.labels, xid.time);
    }
}

}  // namespace lockstep::telemetry
