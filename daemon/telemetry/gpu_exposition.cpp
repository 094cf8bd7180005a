#include "daemon/telemetry/gpu_exposition.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace lockstep::telemetry {
namespace {

struct Row {
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

constexpr std::string_view kTemperature = "Temperature by sensor.";
constexpr std::string_view kClock = "Clock rate by domain.";
constexpr std::string_view kThrottle = "Time with lowered clocks, by reason.";
constexpr std::string_view kPcie = "Bytes over PCIe as seen from the GPU.";
constexpr std::string_view kNvlink = "Bytes over all NVLinks as seen from the GPU.";
constexpr std::string_view kNvlinkErrors = "Errors of all NVLinks, by kind.";
constexpr std::string_view kEcc = "ECC errors of memory since the driver was loaded.";
constexpr std::string_view kRows = "Rows of memory replaced for good.";

// One family's rows follow one another.
constexpr std::array<Row, kGpuMetrics> kRowsOfBody{{
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
                                                     [](const Row& row) { return row.slim; })) ==
              kSlimGpuMetrics);

std::string labels_of(std::string_view node, std::uint32_t gpu) {
    std::string out;
    add_label(out, "node", node);
    add_label(out, "gpu", std::to_string(gpu));
    return out;
}

// Those of one GPU, lockstep_gpu_info included.
std::size_t series_of(const GpuSample& gpu) {
    return 1 + static_cast<std::size_t>(
                   std::count_if(kRowsOfBody.begin(), kRowsOfBody.end(),
                                 [&](const Row& row) { return !std::isnan(gpu[row.metric]); }));
}

using GpuPlace = std::pair<std::string_view, std::uint32_t>;  // node, GPU
using GpuOwners = std::map<GpuPlace, std::size_t>;            // → the node's number in the job

// The GPUs that are shown with `job`. Other jobs are looked at on its nodes only.
GpuOwners owned_by(const GpuTable& table, double now, std::string_view job) {
    struct Claim {
        const GpuSource* source = nullptr;
        bool used = false;
    };
    std::set<std::string_view> nodes;
    table.each_fresh(now, [&](const GpuSource& source, const GpuTable::Look& look) {
        if (source.job == job) {
            nodes.insert(look.node);
        }
    });
    std::map<GpuPlace, Claim> claims;
    table.each_fresh(now, [&](const GpuSource& source, const GpuTable::Look& look) {
        if (!nodes.contains(look.node)) {
            return;
        }
        const auto claim = [&](std::uint32_t gpu, bool used) {
            Claim& owner = claims[{look.node, gpu}];
            if (owner.source == nullptr || (used && !owner.used)) {
                owner = {&source, used};
            }
        };
        for (const GpuUse& use : look.batch.uses) {
            claim(use.gpu, true);
        }
        for (const GpuSample& gpu : look.batch.gpus) {
            claim(gpu.gpu, false);
        }
        for (const GpuXidSeen& xid : look.batch.xids) {
            claim(xid.gpu, false);
        }
    });
    GpuOwners out;
    for (const auto& [place, owner] : claims) {
        if (owner.source->job == job) {
            out.emplace(place, static_cast<std::size_t>(owner.source->slot));
        }
    }
    return out;
}

// `owners`: of the job's GPUs; nullptr = every GPU. Of those the ones in `shard`.
ShownGpus collect(const GpuTable& table, double now, const GpuOwners* owners, Shard shard) {
    ShownGpus out;
    std::set<GpuPlace> seen;
    std::map<std::string, double> xids;
    std::vector<bool> in_part;  // by out.gpus
    const auto slot_of = [owners](std::string_view node,
                                  std::uint32_t gpu) -> std::optional<std::size_t> {
        if (owners == nullptr) {
            return 0;
        }
        const auto owner = owners->find({node, gpu});
        return owner == owners->end() ? std::nullopt : std::optional{owner->second};
    };
    // A page of one job must not cost a walk over the GPUs of all.
    const auto elsewhere = [owners](std::string_view node) {
        if (owners == nullptr) {
            return false;
        }
        const auto first = owners->lower_bound({node, 0});
        return first == owners->end() || first->first.first != node;
    };
    for (const GpuTable::Look* look : table.fresh(now)) {
        if (elsewhere(look->node)) {
            continue;
        }
        for (const GpuSample& gpu : look->batch.gpus) {
            const auto slot = slot_of(look->node, gpu.gpu);
            if (!slot || !seen.emplace(look->node, gpu.gpu).second) {
                continue;
            }
            // A job's own page is asked for part by part.
            if (owners != nullptr || out.gpus.size() < limits::kGpusShown) {
                out.gpus.push_back({labels_of(look->node, gpu.gpu), &gpu});
                in_part.push_back(shard.has(*slot));
            } else {
                out.suppressed += series_of(gpu);
            }
        }
        for (const GpuXidSeen& xid : look->batch.xids) {
            const auto slot = slot_of(look->node, xid.gpu);
            if (!slot || !shard.has(*slot)) {
                continue;
            }
            std::string labels = labels_of(look->node, xid.gpu);
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
    out.slim = out.gpus.size() > limits::kGpusShownInFull;
    for (const Row& row : kRowsOfBody) {
        for (const auto& one : out.gpus) {
            out.suppressed +=
                out.slim && !row.slim && !std::isnan((*one.sample)[row.metric]) ? 1 : 0;
        }
    }
    std::size_t at = 0;
    std::erase_if(out.gpus, [&](const auto&) { return !in_part[at++]; });
    return out;
}

}  // namespace

ShownGpus shown_gpus(const GpuTable& table, double now) {
    return collect(table, now, nullptr, {});
}

ShownGpus job_gpus(const GpuTable& table, double now, std::string_view job, Shard shard) {
    const GpuOwners owners = owned_by(table, now, job);
    return collect(table, now, &owners, shard);
}

void write_gpus(MetricText& text, const ShownGpus& shown) {
    text.family("lockstep_gpu", MetricType::info, "Always 1; the labels say what the GPU is.");
    for (const auto& one : shown.gpus) {
        std::string labels = one.labels;
        add_label(labels, "uuid", one.sample->uuid);
        add_label(labels, "model", one.sample->model);
        add_label(labels, "driver", one.sample->driver);
        add_label(labels, "pci_bus_id", one.sample->pci_bus_id);
        text.sample(labels, std::uint64_t{1});
    }
    std::string_view family;
    std::string labels;
    for (const Row& row : kRowsOfBody) {
        if (shown.slim && !row.slim) {
            continue;
        }
        if (row.family != family) {
            family = row.family;
            text.family(row.family, row.type, row.help);
        }
        for (const auto& one : shown.gpus) {
            const double value = (*one.sample)[row.metric];
            if (std::isnan(value)) {
                continue;
            }
            labels = one.labels;
            if (!row.label.empty()) {
                add_label(labels, row.label, row.value);
            }
            text.sample(labels, value);
        }
    }
    text.family("lockstep_gpu_xid_last_timestamp_seconds", MetricType::gauge,
                "The newest critical error with this number, seconds since the Unix epoch.");
    for (const auto& xid : shown.xids) {
        text.sample(xid.labels, xid.time);
    }
}

}  // namespace lockstep::telemetry
