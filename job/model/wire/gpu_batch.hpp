// What a node's GPUs do, agent → daemon: one binary WebSocket frame of one flat columnar layout,
// once a second at most. The newest replaces all before it: such frames are neither numbered nor
// acknowledged, and the daemon stores a part (daemon/telemetry/series/gpu_history.hpp). No nesting:
// a decoder for untrusted bytes must not recurse. Pure; any thread.
//
// Layout, little-endian, no padding:
//   u32 magic 0x3147534C ("LSG1")      u16 version = 1        u16 columns
//   u32 node_rank  f64 time            seconds since the Unix epoch, the node's clock
//   u32 gpus       u32 uses            u32 xids
//   per GPU:   u32 gpu, then uuid, model, driver, PCI bus id: u8 length, text[length] each
//   per use:   u32 rank, u32 gpu, f64 bytes of the GPU's memory, NaN = not known
//   per Xid:   u32 gpu, u32 xid, f64 time of the newest with this number
//   per column: u8 length, name[length] (a key of kGpuMetricKeys, or one that a newer agent knows
//               and this version leaves out), f64 value[gpus], NaN = not known
#pragma once

#include "job/base/enum_table.hpp"
#include "job/base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Every number NVML gives, in the units of its key; counters never go back while the driver lives.
enum class GpuMetric : std::uint8_t {
    utilization,
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
    pcie_replays,
    nvlink_sent,
    nvlink_received,
    nvlink_recovery,
    nvlink_ecc,
    nvlink_remote,
    nvlink_general,
    nvlink_integrity,
    nvlink_discard,
    nvlink_recovery_failed,
    ecc_corrected,
    ecc_uncorrected,
    remapped_corrected,
    remapped_uncorrected,
    row_remap_pending,
    row_remap_failure,
    recovery_action,
};
inline constexpr std::size_t kGpuMetrics = 38;
inline constexpr std::array<std::string_view, kGpuMetrics> kGpuMetricKeys{
    "utilization_ratio",
    "sm_active_ratio",
    "sm_occupancy_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "memory_used_bytes",
    "memory_total_bytes",
    "energy_joules",
    "power_watts",
    "power_limit_watts",
    "temperature_core_celsius",
    "temperature_memory_celsius",
    "clock_sm_hertz",
    "clock_memory_hertz",
    "throttle_sw_power_seconds",
    "throttle_sync_boost_seconds",
    "throttle_sw_thermal_seconds",
    "throttle_hw_thermal_seconds",
    "throttle_hw_power_brake_seconds",
    "pcie_sent_bytes",
    "pcie_received_bytes",
    "pcie_replays",
    "nvlink_sent_bytes",
    "nvlink_received_bytes",
    "nvlink_recovery_errors",
    "nvlink_ecc_errors",
    "nvlink_remote_errors",
    "nvlink_general_errors",
    "nvlink_integrity_errors",
    "nvlink_discard_errors",
    "nvlink_recovery_failed_errors",
    "ecc_corrected_errors",
    "ecc_uncorrected_errors",
    "remapped_corrected_rows",
    "remapped_uncorrected_rows",
    "row_remap_pending",
    "row_remap_failure",
    "recovery_action",
};
static_assert(names_all_of<GpuMetric>(kGpuMetricKeys));
constexpr std::size_t index(GpuMetric metric) {
    return static_cast<std::size_t>(metric);
}

inline constexpr double kGpuUnknown = std::numeric_limits<double>::quiet_NaN();

struct GpuSample {
    std::uint32_t gpu = 0;  // the number of its /dev/nvidia file, else NVML's index
    std::string uuid;
    std::string model;
    std::string driver;
    std::string pci_bus_id;
    std::array<double, kGpuMetrics> values = unknown();  // by GpuMetric; NaN = not known

    double operator[](GpuMetric metric) const { return values[index(metric)]; }
    double& operator[](GpuMetric metric) { return values[index(metric)]; }

  private:
    static constexpr std::array<double, kGpuMetrics> unknown() {
        std::array<double, kGpuMetrics> out{};
        out.fill(kGpuUnknown);
        return out;
    }
};

// A rank has a process on a GPU.
struct GpuUse {
    std::uint32_t rank = 0;
    std::uint32_t gpu = 0;
    double memory_bytes = kGpuUnknown;
};

// The newest error of a number on a GPU.
struct GpuXidSeen {
    std::uint32_t gpu = 0;
    std::uint32_t xid = 0;
    double time = 0;  // seconds since the Unix epoch
};

struct GpuBatch {
    std::uint32_t node_rank = 0;
    double time = 0;
    std::vector<GpuSample> gpus;  // a GPU that is lost is not among them
    std::vector<GpuUse> uses;     // by rank, then GPU
    std::vector<GpuXidSeen> xids;
};

// Whether a binary frame is one of these, by its magic.
bool is_gpu_batch(std::string_view bytes);

// What exceeds the limits (limits.hpp) is left out, text is cut.
std::string encode_gpu_batch(const GpuBatch& batch);
// invalid: truncated, trailing bytes, wrong magic or version, more of anything than the limits,
// a GPU twice, a bad or repeated column name.
Result<GpuBatch> decode_gpu_batch(std::string_view bytes);

}  // namespace lockstep
