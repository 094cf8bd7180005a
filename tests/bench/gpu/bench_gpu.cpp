// What one look at a GPU costs, call by call: microseconds (median and worst of 50), then a whole
// look at all GPUs. Only a real driver says anything: without one this says SKIPPED and ends with
// 0.
//   bench_gpu [library]
#include "job/agent/gpu/gpu_sampler.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

using namespace lockstep;

constexpr int kTimes = 50;

void measure(const char* what, const std::function<void()>& call) {
    std::vector<double> took;
    for (int i = 0; i < kTimes; ++i) {
        const auto began = std::chrono::steady_clock::now();
        call();
        const std::chrono::duration<double, std::micro> one =
            std::chrono::steady_clock::now() - began;
        took.push_back(one.count());
    }
    std::sort(took.begin(), took.end());
    std::printf("%-44s %10.1f us %10.1f us worst\n", what, took[kTimes / 2], took.back());
}

void each_call(const Nvml& nvml, nvml::Device gpu) {
    const nvml::Api& api = nvml.api();
    unsigned int number = 0;
    if (api.utilization != nullptr) {
        nvml::Utilization use{};
        measure("nvmlDeviceGetUtilizationRates", [&] { api.utilization(gpu, &use); });
    }
    if (api.memory_v2 != nullptr) {
        nvml::MemoryV2 memory{};
        memory.version = nvml::kMemoryV2;
        measure("nvmlDeviceGetMemoryInfo_v2", [&] { api.memory_v2(gpu, &memory); });
    }
    if (api.temperature != nullptr) {
        measure("nvmlDeviceGetTemperature", [&] { api.temperature(gpu, 0, &number); });
    }
    if (api.clock != nullptr) {
        measure("nvmlDeviceGetClockInfo", [&] { api.clock(gpu, nvml::kClockSm, &number); });
    }
    if (api.power != nullptr) {
        measure("nvmlDeviceGetPowerUsage", [&] { api.power(gpu, &number); });
    }
    if (api.processes != nullptr) {
        std::vector<nvml::ProcessInfo> processes(64);
        measure("nvmlDeviceGetComputeRunningProcesses", [&] {
            number = 64;
            api.processes(gpu, &number, processes.data());
        });
    }
    for (const unsigned int id :
         {nvml::field::kEnergy, nvml::field::kPowerInstant, nvml::field::kThrottleSwPower,
          nvml::field::kNvlinkDataTx, nvml::field::kPcieTx, nvml::field::kEccUncorrected,
          nvml::field::kRecoveryAction}) {
        if (api.fields == nullptr) {
            break;
        }
        nvml::FieldValue value{};
        value.field = id;
        value.scope = id == nvml::field::kNvlinkDataTx ? nvml::kAllLinks : 0;
        std::array<char, 64> what{};
        std::snprintf(what.data(), what.size(), "nvmlDeviceGetFieldValues, field %u", id);
        measure(what.data(), [&] { api.fields(gpu, 1, &value); });
        std::printf("%44s result %d, type %u\n", "", value.result, value.type);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const auto nvml = Nvml::open(argc > 1 ? argv[1] : kNvmlLibrary);
    if (!nvml) {
        std::printf("SKIPPED: no GPU here (%s)\n", nvml.error().message.c_str());
        return 0;
    }
    GpuSampler sampler{**nvml};
    if (sampler.gpus() == 0) {
        std::printf("SKIPPED: the driver shows no GPU\n");
        return 0;
    }
    each_call(**nvml, sampler.handles().front().first);
    const RankProcesses processes{{{1, 0}}};
    std::array<char, 64> what{};
    std::snprintf(what.data(), what.size(), "one look at %zu GPUs", sampler.gpus());
    GpuBatch last;
    measure(what.data(), [&] { last = sampler.sample(1, processes); });
    for (const GpuSample& gpu : last.gpus) {
        std::printf("GPU %u %s %s driver %s\n", gpu.gpu, gpu.model.c_str(), gpu.uuid.c_str(),
                    gpu.driver.c_str());
        for (std::size_t i = 0; i < kGpuMetrics; ++i) {
            std::printf("  %-32.*s %.6g\n", static_cast<int>(kGpuMetricKeys[i].size()),
                        kGpuMetricKeys[i].data(), gpu.values[i]);
        }
    }
    return 0;
}
