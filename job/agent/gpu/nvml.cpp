#include "job/agent/gpu/nvml.hpp"

#include <dlfcn.h>

#include <initializer_list>

namespace lockstep {
namespace {

// The first of the names that the library has; null if it has none.
template <class Function>
void find(void* library, Function*& function, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (void* symbol = ::dlsym(library, name); symbol != nullptr) {
            function = reinterpret_cast<Function*>(symbol);
            return;
        }
    }
}

void find_all(void* library, nvml::Api& api) {
    find(library, api.init, {"nvmlInit_v2"});
    find(library, api.shutdown, {"nvmlShutdown"});
    find(library, api.error_string, {"nvmlErrorString"});
    find(library, api.driver_version, {"nvmlSystemGetDriverVersion"});
    find(library, api.count, {"nvmlDeviceGetCount_v2"});
    find(library, api.handle, {"nvmlDeviceGetHandleByIndex_v2"});
    find(library, api.uuid, {"nvmlDeviceGetUUID"});
    find(library, api.name, {"nvmlDeviceGetName"});
    find(library, api.minor, {"nvmlDeviceGetMinorNumber"});
    find(library, api.pci, {"nvmlDeviceGetPciInfo_v3"});
    find(library, api.utilization, {"nvmlDeviceGetUtilizationRates"});
    find(library, api.memory, {"nvmlDeviceGetMemoryInfo"});
    find(library, api.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    find(library, api.temperature, {"nvmlDeviceGetTemperature"});
    find(library, api.clock, {"nvmlDeviceGetClockInfo"});
    find(library, api.power, {"nvmlDeviceGetPowerUsage"});
    find(library, api.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
    find(library, api.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
    find(library, api.fields, {"nvmlDeviceGetFieldValues"});
    find(library, api.processes,
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
    find(library, api.processes_v1, {"nvmlDeviceGetComputeRunningProcesses"});
    find(library, api.ecc_errors, {"nvmlDeviceGetTotalEccErrors"});
    find(library, api.remapped_rows, {"nvmlDeviceGetRemappedRows"});
    find(library, api.retired_pages_pending, {"nvmlDeviceGetRetiredPagesPendingStatus"});
    find(library, api.mig_mode, {"nvmlDeviceGetMigMode"});
    // The second is the name before driver 535, and still there.
    find(library, api.clock_reasons,
         {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    find(library, api.link_state, {"nvmlDeviceGetNvLinkState"});
    find(library, api.link_errors, {"nvmlDeviceGetNvLinkErrorCounter"});
    find(library, api.gpm_support, {"nvmlGpmQueryDeviceSupport"});
    find(library, api.gpm_alloc, {"nvmlGpmSampleAlloc"});
    find(library, api.gpm_free, {"nvmlGpmSampleFree"});
    find(library, api.gpm_sample, {"nvmlGpmSampleGet"});
    find(library, api.gpm_metrics, {"nvmlGpmMetricsGet"});
    find(library, api.events_create, {"nvmlEventSetCreate"});
    find(library, api.events_free, {"nvmlEventSetFree"});
    find(library, api.events_register, {"nvmlDeviceRegisterEvents"});
    find(library, api.events_wait, {"nvmlEventSetWait_v2", "nvmlEventSetWait"});
}

}  // namespace

Result<std::unique_ptr<Nvml>> Nvml::open(const char* library) {
    // Never closed: the driver's library has threads and handlers of its own at exit.
    void* loaded = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) {
        const char* why = ::dlerror();
        return fail(Errc::not_found, why != nullptr ? why : "it cannot be loaded");
    }
    std::unique_ptr<Nvml> out{new Nvml};
    find_all(loaded, out->api_);
    const nvml::Api& api = out->api_;
    if (api.init == nullptr || api.shutdown == nullptr || api.count == nullptr ||
        api.handle == nullptr) {
        out->api_.shutdown = nullptr;  // nothing was initialised
        return fail(Errc::invalid, std::string{library} + " is not NVML");
    }
    if (const auto code = api.init(); code != nvml::kSuccess) {
        const std::string why = out->error(code);
        out->api_.shutdown = nullptr;
        return fail(Errc::not_found, why);
    }
    return out;
}

Nvml::~Nvml() {
    if (api_.shutdown != nullptr) {
        api_.shutdown();
    }
}

std::string Nvml::error(nvml::Return code) const {
    const char* text = api_.error_string != nullptr ? api_.error_string(code) : nullptr;
    return text != nullptr ? text : "NVML error " + std::to_string(static_cast<int>(code));
}

}  // namespace lockstep
