// A stand-in for NVIDIA's libnvidia-ml.so.1, opened by the agent as the real one is. What its GPUs
// do says fake_state.hpp, anew at every call. Without FAKE_NVML nvmlInit_v2 says that there is no
// driver.
#include "tests/support/fake_nvml/fake_state.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace {

using namespace lockstep::nvml;
using fake_nvml::Gpu;
using fake_nvml::read_state;
using fake_nvml::State;

// A handle is the GPU's index and one, as a pointer.
std::size_t index_of(Device device) {
    return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}
Device handle_of(std::size_t index) {
    return reinterpret_cast<Device>(static_cast<std::uintptr_t>(index + 1));
}

template <class Body>
Return with(Device device, Body body) {
    State state = read_state();
    while (state.hangs) {
        if (const char* path = std::getenv("FAKE_NVML")) {
            std::ofstream{std::string{path} + ".hangs"} << "";
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
        state = read_state();
    }
    const std::size_t index = index_of(device);
    if (index >= state.gpus) {
        return kErrorInvalidArgument;
    }
    return state.gpu[index].lost ? kErrorGpuIsLost : body(state.gpu[index]);
}

Return put(const std::string& text, char* out, unsigned int size) {
    if (text.size() + 1 > size) {
        return kErrorInsufficientSize;
    }
    std::memcpy(out, text.c_str(), text.size() + 1);
    return kSuccess;
}

struct Events {
    std::set<std::size_t> gpus;
    std::size_t told = 0;
};

}  // namespace

extern "C" {

Return nvmlInit_v2() {
    return std::getenv("FAKE_NVML") != nullptr ? kSuccess : kErrorDriverNotLoaded;
}
Return nvmlShutdown() {
    return kSuccess;
}
const char* nvmlErrorString(Return code) {
    return code == kErrorDriverNotLoaded ? "Driver Not Loaded" : "fake error";
}
Return nvmlSystemGetDriverVersion(char* out, unsigned int size) {
    return put(read_state().driver, out, size);
}
Return nvmlDeviceGetCount_v2(unsigned int* count) {
    *count = static_cast<unsigned int>(read_state().gpus);
    return kSuccess;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device* device) {
    *device = handle_of(index);
    const State state = read_state();
    if (index < state.gpus && state.gpu[index].hidden) {
        return kErrorNoPermission;
    }
    if (index < state.gpus && state.gpu[index].fallen) {
        return kErrorGpuIsLost;
    }
    return index < state.gpus ? kSuccess : kErrorInvalidArgument;
}
Return nvmlDeviceGetUUID(Device device, char* out, unsigned int size) {
    return put("GPU-fake-" + std::to_string(index_of(device)), out, size);
}
Return nvmlDeviceGetName(Device, char* out, unsigned int size) {
    return put("Fake H100 80GB", out, size);
}
Return nvmlDeviceGetMinorNumber(Device device, unsigned int* minor) {
    return with(device, [&](const Gpu& gpu) {
        *minor = gpu.minor;
        return kSuccess;
    });
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
    *pci = {};
    std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02zX:00.0",
                  (index_of(device) + 1) % 256);
    return kSuccess;
}
Return nvmlDeviceGetUtilizationRates(Device device, Utilization* out) {
    return with(device, [&](const Gpu& gpu) {
        *out = {gpu.utilization, 0};
        return gpu.mig ? kErrorNotSupported : kSuccess;
    });
}
Return nvmlDeviceGetMemoryInfo(Device device, Memory* out) {
    return with(device, [&](const Gpu& gpu) {
        *out = {gpu.memory_total, gpu.memory_total - gpu.memory_used, gpu.memory_used};
        return kSuccess;
    });
}
Return nvmlDeviceGetTemperature(Device device, int sensor, unsigned int* out) {
    return with(device, [&](const Gpu& gpu) {
        *out = gpu.temperature;
        return sensor == kTemperatureGpu ? kSuccess : kErrorInvalidArgument;
    });
}
Return nvmlDeviceGetClockInfo(Device device, int domain, unsigned int* out) {
    return with(device, [&](const Gpu& gpu) {
        *out = domain == kClockSm ? gpu.clock_sm : gpu.clock_memory;
        return kSuccess;
    });
}
Return nvmlDeviceGetPowerUsage(Device device, unsigned int* out) {
    return with(device, [&](const Gpu&) {
        *out = 55'000;
        return kSuccess;
    });
}
Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned int* out) {
    return with(device, [&](const Gpu&) {
        *out = 300'000;
        return kSuccess;
    });
}
Return nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* out) {
    return with(device, [&](const Gpu&) {
        *out = 5'000;
        return kSuccess;
    });
}

Return nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, unsigned long long* out) {
    return with(device, [&](const Gpu& gpu) {
        *out = gpu.ecc;
        return gpu.no.contains("ecc")                         ? kErrorNotSupported
               : type == kUncorrected && counter == kVolatile ? kSuccess
                                                              : kErrorInvalidArgument;
    });
}
Return nvmlDeviceGetRemappedRows(Device device, unsigned int* corrected, unsigned int* uncorrected,
                                 unsigned int* pending, unsigned int* failed) {
    return with(device, [&](const Gpu& gpu) {
        *corrected = *uncorrected = gpu.remap[0];
        *pending = gpu.remap[0];
        *failed = gpu.remap[1];
        return gpu.no.contains("remap") ? kErrorNotSupported : kSuccess;
    });
}
Return nvmlDeviceGetRetiredPagesPendingStatus(Device device, int* pending) {
    return with(device, [&](const Gpu& gpu) {
        *pending = gpu.pages;
        return gpu.no.contains("pages") ? kErrorNotSupported : kSuccess;
    });
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* out) {
    return with(device, [&](const Gpu& gpu) {
        *out = gpu.reasons;
        return gpu.no.contains("reasons") ? kErrorNotSupported : kSuccess;
    });
}
Return nvmlDeviceGetMigMode(Device device, unsigned int* current, unsigned int* pending) {
    return with(device, [&](const Gpu& gpu) {
        *current = *pending = gpu.mig ? kEnabled : 0;
        return gpu.no.contains("mig") ? kErrorNotSupported : kSuccess;
    });
}
Return nvmlDeviceGetNvLinkState(Device device, unsigned int link, int* active) {
    return with(device, [&](const Gpu& gpu) {
        if (link >= gpu.links.size()) {
            return gpu.links.empty() ? kErrorNotSupported : kErrorInvalidArgument;
        }
        *active = gpu.links[link].up ? kEnabled : 0;
        return kSuccess;
    });
}
Return nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned int link, int counter,
                                       unsigned long long* out) {
    return with(device, [&](const Gpu& gpu) {
        if (link >= gpu.links.size() || counter < 0 || counter > kLinkCrcData) {
            return kErrorInvalidArgument;
        }
        *out = gpu.links[link].errors.at(static_cast<std::size_t>(counter));
        return kSuccess;
    });
}

#ifdef FAKE_NVML_OLD
Return nvmlDeviceGetComputeRunningProcesses(Device device, unsigned int* count,
                                            ProcessInfoV1* out) {
    return with(device, [&](const Gpu& gpu) {
        const bool fits = gpu.processes.size() <= *count;
        *count = static_cast<unsigned int>(gpu.processes.size());
        for (std::size_t i = 0; fits && i < gpu.processes.size(); ++i) {
            out[i] = {gpu.processes[i].first, gpu.processes[i].second};
        }
        return fits ? kSuccess : kErrorInsufficientSize;
    });
}
#else
Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* out) {
    return with(device, [&](const Gpu& gpu) {
        if (out->version != kMemoryV2) {
            return kErrorInvalidArgument;
        }
        out->total = gpu.memory_total;
        out->used = gpu.memory_used;
        out->free = gpu.memory_total - gpu.memory_used;
        return kSuccess;
    });
}
Return nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* out) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, out);
}
Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
    return with(device, [&](const Gpu& gpu) {
        for (int i = 0; i < count; ++i) {
            FieldValue& value = values[i];
            const auto found = gpu.fields.find(value.field);
            value.result = found == gpu.fields.end() ? kErrorNotSupported : kSuccess;
            if (found == gpu.fields.end()) {
                continue;
            }
            value.type = found->second.wide ? kUnsignedLongLong : kUnsignedInt;
            value.value.ull = 0xFFFF'FFFF'FFFF'FFFF;  // the real one leaves the rest as it was too
            if (found->second.wide) {
                value.value.ull = found->second.value;
            } else {
                value.value.ui = static_cast<unsigned int>(found->second.value);
            }
        }
        return kSuccess;
    });
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned int* count,
                                               ProcessInfo* out) {
    return with(device, [&](const Gpu& gpu) {
        if (gpu.no.contains("processes")) {
            return kErrorNotSupported;
        }
        const bool fits = gpu.processes.size() <= *count;
        *count = static_cast<unsigned int>(gpu.processes.size());
        for (std::size_t i = 0; fits && i < gpu.processes.size(); ++i) {
            out[i] = {gpu.processes[i].first, gpu.processes[i].second, ~0U, ~0U};
        }
        return fits ? kSuccess : kErrorInsufficientSize;
    });
}
Return nvmlGpmQueryDeviceSupport(Device device, GpmSupport* support) {
    return with(device, [&](const Gpu& gpu) {
        support->supported = gpu.gpm ? 1 : 0;
        return support->version == kGpmVersion ? kSuccess : kErrorInvalidArgument;
    });
}
Return nvmlGpmSampleAlloc(GpmSample* sample) {
    *sample = reinterpret_cast<GpmSample>(new std::size_t{0});
    return kSuccess;
}
Return nvmlGpmSampleFree(GpmSample sample) {
    delete reinterpret_cast<std::size_t*>(sample);
    return kSuccess;
}
Return nvmlGpmSampleGet(Device device, GpmSample sample) {
    return with(device, [&](const Gpu&) {
        *reinterpret_cast<std::size_t*>(sample) = index_of(device) + 1;
        return kSuccess;
    });
}
Return nvmlGpmMetricsGet(GpmMetricsGet* get) {
    const std::size_t device = *reinterpret_cast<std::size_t*>(get->now);
    if (get->version != kGpmVersion || device == 0 || get->before == get->now ||
        *reinterpret_cast<std::size_t*>(get->before) != device) {
        return kErrorInvalidArgument;  // not two samples of one GPU
    }
    return with(handle_of(device - 1), [&](const Gpu& gpu) {
        for (unsigned int i = 0; i < get->count; ++i) {
            GpmMetric& metric = get->metrics[i];
            const auto found = gpu.gpm_values.find(metric.id);
            metric.result = found == gpu.gpm_values.end() ? kErrorNotSupported : kSuccess;
            metric.value = found == gpu.gpm_values.end() ? 0 : found->second;
        }
        return kSuccess;
    });
}
Return nvmlEventSetCreate(EventSet* set) {
    auto* events = new Events;
    events->told = read_state().xids.size();
    *set = reinterpret_cast<EventSet>(events);
    return kSuccess;
}
Return nvmlEventSetFree(EventSet set) {
    delete reinterpret_cast<Events*>(set);
    return kSuccess;
}
Return nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet set) {
    reinterpret_cast<Events*>(set)->gpus.insert(index_of(device));
    return types == kEventXid ? kSuccess : kErrorNotSupported;
}
Return nvmlEventSetWait_v2(EventSet set, EventData* out, unsigned int wait_ms) {
    auto& events = *reinterpret_cast<Events*>(set);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{wait_ms};
    for (;;) {
        const State state = read_state();
        while (events.told < state.xids.size()) {
            const auto [gpu, xid] = state.xids[events.told++];
            if (events.gpus.count(gpu) != 0) {
                *out = {handle_of(gpu), kEventXid, xid, ~0U, ~0U};
                return kSuccess;
            }
        }
        if (std::chrono::steady_clock::now() >= until) {
            return kErrorTimeout;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
}
#endif

}  // extern "C"
