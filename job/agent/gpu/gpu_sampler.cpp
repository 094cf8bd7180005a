// size: one small function per group of calls, and the table of fields they fill
#include "job/agent/gpu/gpu_sampler.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

using nvml::FieldValue;
using nvml::kSuccess;

constexpr double kMilli = 1e-3;
constexpr double kNano = 1e-9;
constexpr double kMega = 1e6;
constexpr double kKibi = 1024;

struct Field {
    unsigned int id;
    GpuMetric metric;
    double scale = 1;
    unsigned int scope = 0;
    bool only_64_bit = false;  // anything else under this number is another quantity
};

// Of fields with the same metric the first that the GPU knows counts.
constexpr std::array kNvmlFields{
    Field{nvml::field::kEnergy, GpuMetric::energy, kMilli},
    Field{nvml::field::kPowerInstant, GpuMetric::power, kMilli},
    Field{nvml::field::kPowerAverage, GpuMetric::power, kMilli},
    Field{nvml::field::kPowerLimit, GpuMetric::power_limit, kMilli},
    Field{nvml::field::kMemoryTemperature, GpuMetric::temperature_memory},
    Field{nvml::field::kThrottleSwPower, GpuMetric::throttle_sw_power, kNano},
    Field{nvml::field::kThrottleSyncBoost, GpuMetric::throttle_sync_boost, kNano},
    Field{nvml::field::kThrottleSwThermal, GpuMetric::throttle_sw_thermal, kNano, 0, true},
    Field{nvml::field::kThrottleSwThermalOther, GpuMetric::throttle_sw_thermal, kNano, 0, true},
    Field{nvml::field::kThrottleHwThermal, GpuMetric::throttle_hw_thermal, kNano, 0, true},
    Field{nvml::field::kThrottleHwThermalOther, GpuMetric::throttle_hw_thermal, kNano, 0, true},
    Field{nvml::field::kThrottleHwPowerBrake, GpuMetric::throttle_hw_power_brake, kNano, 0, true},
    Field{nvml::field::kThrottleHwPowerBrakeOther, GpuMetric::throttle_hw_power_brake, kNano, 0,
          true},
    Field{nvml::field::kPcieTx, GpuMetric::pcie_sent},
    Field{nvml::field::kPcieRx, GpuMetric::pcie_received},
    Field{nvml::field::kPcieReplays, GpuMetric::pcie_replays},
    Field{nvml::field::kNvlinkDataTx, GpuMetric::nvlink_sent, kKibi, nvml::kAllLinks},
    Field{nvml::field::kNvlinkXmitBytes, GpuMetric::nvlink_sent, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkDataRx, GpuMetric::nvlink_received, kKibi, nvml::kAllLinks},
    Field{nvml::field::kNvlinkRcvBytes, GpuMetric::nvlink_received, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkRecoveryTotal, GpuMetric::nvlink_recovery},
    Field{nvml::field::kNvlinkRecovery, GpuMetric::nvlink_recovery, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkRecoveryEvents, GpuMetric::nvlink_recovery, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkEccTotal, GpuMetric::nvlink_ecc},
    Field{nvml::field::kNvlinkRemoteErrors, GpuMetric::nvlink_remote, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkGeneralErrors, GpuMetric::nvlink_general, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkIntegrityErrors, GpuMetric::nvlink_integrity, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkDiscards, GpuMetric::nvlink_discard, 1, nvml::kAllLinks},
    Field{nvml::field::kNvlinkRecoveryFailed, GpuMetric::nvlink_recovery_failed, 1,
          nvml::kAllLinks},
    Field{nvml::field::kEccCorrected, GpuMetric::ecc_corrected},
    Field{nvml::field::kEccUncorrected, GpuMetric::ecc_uncorrected},
    Field{nvml::field::kRemappedCorrected, GpuMetric::remapped_corrected},
    Field{nvml::field::kRemappedUncorrected, GpuMetric::remapped_uncorrected},
    Field{nvml::field::kRemapPending, GpuMetric::row_remap_pending},
    Field{nvml::field::kRemapFailure, GpuMetric::row_remap_failure},
    Field{nvml::field::kRecoveryAction, GpuMetric::recovery_action},
};

constexpr std::array kGpmMetrics{
    std::pair{nvml::gpm::kSmUtil, GpuMetric::sm_active},
    std::pair{nvml::gpm::kSmOccupancy, GpuMetric::sm_occupancy},
    std::pair{nvml::gpm::kAnyTensorUtil, GpuMetric::tensor_active},
    std::pair{nvml::gpm::kDramBandwidthUtil, GpuMetric::dram_active},
};

double number_of(const FieldValue& field) {
    switch (field.type) {
        case nvml::kDouble:
            return field.value.d;
        case nvml::kUnsignedInt:
            return field.value.ui;
        case nvml::kUnsignedLong:
            return static_cast<double>(field.value.ul);
        case nvml::kUnsignedLongLong:
            return static_cast<double>(field.value.ull);
        case nvml::kSignedLongLong:
            return static_cast<double>(field.value.sll);
        case nvml::kSignedInt:
            return field.value.si;
        case nvml::kUnsignedShort:
            return field.value.us;
    }
    return kGpuUnknown;
}

bool is_64_bit(const FieldValue& field) {
    return field.type == nvml::kUnsignedLongLong || field.type == nvml::kUnsignedLong;
}

}  // namespace

double WideCounter::update(std::uint64_t raw, bool wide) {
    if (wide) {
        return static_cast<double>(raw);
    }
    const auto now = static_cast<std::uint32_t>(raw);
    sum_ += started_ ? static_cast<std::uint32_t>(now - last_) : now;
    last_ = now;
    started_ = true;
    return static_cast<double>(sum_);
}

struct GpuSampler::Device {
    nvml::Device handle = nullptr;
    GpuSample known;  // what does not change
    bool lost = false;
    nvml::Return worst = kSuccess;  // of this sample: kErrorGpuIsLost if a call said so
    nvml::GpmSample before = nullptr;
    nvml::GpmSample now = nullptr;
    bool has_before = false;
    WideCounter pcie_sent;
    WideCounter pcie_received;

    bool good(nvml::Return code) {
        if (code == nvml::kErrorGpuIsLost) {
            worst = code;
        }
        return code == kSuccess;
    }
};

GpuSampler::GpuSampler(const Nvml& nvml) : nvml_(nvml) {
    const nvml::Api& api = nvml.api();
    std::array<char, 80> driver{};
    if (api.driver_version != nullptr) {
        api.driver_version(driver.data(), driver.size());
        driver.back() = '\0';
    }
    unsigned int count = 0;
    if (api.count(&count) != kSuccess) {
        return;
    }
    count = std::min(count, static_cast<unsigned int>(limits::kGpusPerNode));
    for (unsigned int i = 0; i < count; ++i) {
        auto device = std::make_unique<Device>();
        // One that this user may not see is not this job's.
        if (api.handle(i, &device->handle) == kSuccess) {
            identify(*device, i, driver.data());
            devices_.push_back(std::move(device));
        }
    }
}

GpuSampler::~GpuSampler() {
    for (const auto& device : devices_) {
        for (const nvml::GpmSample sample : {device->before, device->now}) {
            if (sample != nullptr && nvml_.api().gpm_free != nullptr) {
                nvml_.api().gpm_free(sample);
            }
        }
    }
}

void GpuSampler::identify(Device& device, std::uint32_t index, const std::string& driver) const {
    const nvml::Api& api = nvml_.api();
    GpuSample& known = device.known;
    known.gpu = index;
    known.driver = driver;
    std::array<char, 97> text{};
    if (unsigned int minor = 0;
        api.minor != nullptr && api.minor(device.handle, &minor) == kSuccess) {
        known.gpu = minor;
    }
    if (api.uuid != nullptr && api.uuid(device.handle, text.data(), 96) == kSuccess) {
        known.uuid = text.data();
    }
    if (api.name != nullptr && api.name(device.handle, text.data(), 96) == kSuccess) {
        known.model = text.data();
    }
    if (nvml::PciInfo pci{}; api.pci != nullptr && api.pci(device.handle, &pci) == kSuccess) {
        pci.bus_id[sizeof pci.bus_id - 1] = '\0';
        known.pci_bus_id = pci.bus_id;
    }
    nvml::GpmSupport support{nvml::kGpmVersion, 0};
    const bool whole = api.gpm_support != nullptr && api.gpm_alloc != nullptr &&
                       api.gpm_free != nullptr && api.gpm_sample != nullptr &&
                       api.gpm_metrics != nullptr;
    if (whole && api.gpm_support(device.handle, &support) == kSuccess && support.supported != 0) {
        if (api.gpm_alloc(&device.before) != kSuccess) {
            device.before = nullptr;
        }
        if (api.gpm_alloc(&device.now) != kSuccess) {
            device.now = nullptr;
        }
    }
}

std::vector<std::pair<nvml::Device, std::uint32_t>> GpuSampler::handles() const {
    std::vector<std::pair<nvml::Device, std::uint32_t>> out;
    for (const auto& device : devices_) {
        out.emplace_back(device->handle, device->known.gpu);
    }
    return out;
}

GpuBatch GpuSampler::sample(double time, const RankProcesses& processes) {
    GpuBatch batch;
    batch.time = time;
    for (const auto& device : devices_) {
        GpuSample sample = device->known;
        if (read(*device, sample)) {
            batch.gpus.push_back(std::move(sample));
            read_uses(*device, processes, batch.uses);
        }
    }
    std::sort(batch.uses.begin(), batch.uses.end(), [](const GpuUse& a, const GpuUse& b) {
        return std::pair{a.rank, a.gpu} < std::pair{b.rank, b.gpu};
    });
    return batch;
}

bool GpuSampler::read(Device& device, GpuSample& out) {
    device.worst = kSuccess;
    read_plain(device, out);
    if (device.worst == kSuccess) {
        read_memory(device, out);
        read_fields(device, out);
        read_fallbacks(device, out);
        read_gpm(device, out);
    }
    const bool lost = device.worst != kSuccess;
    if (lost != std::exchange(device.lost, lost)) {
        device.has_before = false;
        device.pcie_sent.restart();
        device.pcie_received.restart();
        if (lost) {
            log::warn("GPU is lost", {{"gpu", out.gpu}, {"uuid", out.uuid}});
        } else {
            log::info("GPU is back", {{"gpu", out.gpu}, {"uuid", out.uuid}});
        }
    }
    return !lost;
}

void GpuSampler::read_plain(Device& device, GpuSample& out) const {
    const nvml::Api& api = nvml_.api();
    if (nvml::Utilization use{};
        api.utilization != nullptr && device.good(api.utilization(device.handle, &use))) {
        out[GpuMetric::utilization] = use.gpu / 100.0;
    }
    unsigned int value = 0;
    if (api.temperature != nullptr &&
        device.good(api.temperature(device.handle, nvml::kTemperatureGpu, &value))) {
        out[GpuMetric::temperature_core] = value;
    }
    if (api.clock != nullptr) {
        if (device.good(api.clock(device.handle, nvml::kClockSm, &value))) {
            out[GpuMetric::clock_sm] = value * kMega;
        }
        if (device.good(api.clock(device.handle, nvml::kClockMemory, &value))) {
            out[GpuMetric::clock_memory] = value * kMega;
        }
    }
}

void GpuSampler::read_memory(Device& device, GpuSample& out) const {
    const nvml::Api& api = nvml_.api();
    const auto put = [&out](unsigned long long used, unsigned long long total) {
        out[GpuMetric::memory_used] = static_cast<double>(used);
        out[GpuMetric::memory_total] = static_cast<double>(total);
    };
    nvml::MemoryV2 memory{};
    memory.version = nvml::kMemoryV2;
    if (api.memory_v2 != nullptr && device.good(api.memory_v2(device.handle, &memory))) {
        put(memory.used, memory.total);
        return;
    }
    if (nvml::Memory old{}; api.memory != nullptr && device.good(api.memory(device.handle, &old))) {
        put(old.used, old.total);
    }
}

void GpuSampler::read_fields(Device& device, GpuSample& out) const {
    const nvml::Api& api = nvml_.api();
    if (api.fields == nullptr) {
        return;
    }
    std::array<FieldValue, kNvmlFields.size()> values{};
    for (std::size_t i = 0; i < kNvmlFields.size(); ++i) {
        values[i].field = kNvmlFields[i].id;
        values[i].scope = kNvmlFields[i].scope;
        values[i].result = nvml::kErrorUnknown;  // should the library leave it as it was
    }
    if (!device.good(api.fields(device.handle, static_cast<int>(values.size()), values.data()))) {
        return;
    }
    for (std::size_t i = 0; i < kNvmlFields.size(); ++i) {
        const Field& field = kNvmlFields[i];
        const FieldValue& value = values[i];
        if (!device.good(value.result) || !std::isnan(out[field.metric]) ||
            (field.only_64_bit && !is_64_bit(value))) {
            continue;
        }
        const double number = number_of(value);
        if (field.metric == GpuMetric::pcie_sent || field.metric == GpuMetric::pcie_received) {
            WideCounter& counter =
                field.metric == GpuMetric::pcie_sent ? device.pcie_sent : device.pcie_received;
            out[field.metric] =
                counter.update(static_cast<std::uint64_t>(number), is_64_bit(value));
        } else {
            out[field.metric] = number * field.scale;
        }
    }
}

// Drivers before 530 have no fields of these.
void GpuSampler::read_fallbacks(Device& device, GpuSample& out) const {
    const nvml::Api& api = nvml_.api();
    unsigned int value = 0;
    if (std::isnan(out[GpuMetric::power]) && api.power != nullptr &&
        device.good(api.power(device.handle, &value))) {
        out[GpuMetric::power] = value * kMilli;
    }
    if (std::isnan(out[GpuMetric::power_limit]) && api.power_limit != nullptr &&
        device.good(api.power_limit(device.handle, &value))) {
        out[GpuMetric::power_limit] = value * kMilli;
    }
    unsigned long long energy = 0;
    if (std::isnan(out[GpuMetric::energy]) && api.energy != nullptr &&
        device.good(api.energy(device.handle, &energy))) {
        out[GpuMetric::energy] = static_cast<double>(energy) * kMilli;
    }
}

void GpuSampler::read_gpm(Device& device, GpuSample& out) {
    if (device.before == nullptr || device.now == nullptr) {
        return;
    }
    const nvml::Api& api = nvml_.api();
    if (!device.good(api.gpm_sample(device.handle, device.now))) {
        return;
    }
    if (device.has_before) {
        gpm_.version = nvml::kGpmVersion;
        gpm_.count = kGpmMetrics.size();
        gpm_.before = device.before;
        gpm_.now = device.now;
        for (std::size_t i = 0; i < kGpmMetrics.size(); ++i) {
            gpm_.metrics[i] = {};
            gpm_.metrics[i].id = kGpmMetrics[i].first;
            gpm_.metrics[i].result = nvml::kErrorUnknown;
        }
        if (device.good(api.gpm_metrics(&gpm_))) {
            for (std::size_t i = 0; i < kGpmMetrics.size(); ++i) {
                if (gpm_.metrics[i].result == kSuccess && std::isfinite(gpm_.metrics[i].value)) {
                    out[kGpmMetrics[i].second] = gpm_.metrics[i].value / 100.0;
                }
            }
        }
    }
    std::swap(device.before, device.now);
    device.has_before = true;
}

std::vector<nvml::ProcessInfo> GpuSampler::compute_processes(const Device& device) const {
    const nvml::Api& api = nvml_.api();
    // Between asking how many there are and asking for them, one more may have come: room for some.
    std::vector<nvml::ProcessInfo> out(64);
    auto count = static_cast<unsigned int>(out.size());
    if (api.processes != nullptr) {
        auto code = api.processes(device.handle, &count, out.data());
        if (code == nvml::kErrorInsufficientSize && count <= limits::kGpuUses) {
            out.resize(count + 16);
            count = static_cast<unsigned int>(out.size());
            code = api.processes(device.handle, &count, out.data());
        }
        out.resize(code == kSuccess ? std::min<std::size_t>(count, out.size()) : 0);
        return out;
    }
    out.clear();
    std::vector<nvml::ProcessInfoV1> old(64);
    count = static_cast<unsigned int>(old.size());
    if (api.processes_v1 != nullptr &&
        api.processes_v1(device.handle, &count, old.data()) == kSuccess) {
        old.resize(std::min<std::size_t>(count, old.size()));
        for (const auto& one : old) {
            out.push_back({one.pid, one.used_memory, 0, 0});
        }
    }
    return out;
}

// A rank may have several processes on a GPU: their memory is added up.
void GpuSampler::read_uses(const Device& device, const RankProcesses& processes,
                           std::vector<GpuUse>& uses) const {
    if (processes.empty()) {
        return;
    }
    const std::uint32_t gpu = device.known.gpu;
    for (const auto& process : compute_processes(device)) {
        const auto rank = processes.rank_of(process.pid);
        if (!rank) {
            continue;
        }
        const double memory = process.used_memory == nvml::kMemoryNotAvailable
                                  ? kGpuUnknown
                                  : static_cast<double>(process.used_memory);
        const auto same = std::find_if(uses.begin(), uses.end(), [&](const GpuUse& use) {
            return use.rank == *rank && use.gpu == gpu;
        });
        if (same == uses.end()) {
            uses.push_back({*rank, gpu, memory});
        } else if (std::isnan(same->memory_bytes)) {
            same->memory_bytes = memory;
        } else if (!std::isnan(memory)) {
            same->memory_bytes += memory;
        }
    }
}

}  // namespace lockstep
