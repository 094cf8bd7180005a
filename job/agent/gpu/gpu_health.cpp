#include "job/agent/gpu/gpu_health.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

using nvml::kSuccess;

// A change of clocks shows as a slowdown for a moment: what is there twice counts.
constexpr std::chrono::milliseconds kAgain{100};
constexpr std::int64_t kMb = 1 << 20;
constexpr std::size_t kProcesses = 8;
// Of drivers before this one the field's number means nothing, or something else.
constexpr std::int64_t kRecoveryDriver = 570;

struct Candidate {
    unsigned int index = 0;
    nvml::Device handle = nullptr;
    nvml::Return code = kSuccess;
    std::string uuid;
};

class Look {
  public:
    Look(const Nvml& nvml, const std::filesystem::path& root) : nvml_(nvml), root_(root) {}

    GpuHealth at(const Candidate& gpu);
    std::vector<std::string> unseen() const { return {unseen_.begin(), unseen_.end()}; }
    // nullopt: the driver does not say how many there are.
    std::optional<std::vector<Candidate>> find();

  private:
    // Whether it answered; what did not, but for a lost GPU, is remembered.
    bool good(nvml::Return code, const char* what);
    void identify(nvml::Device gpu, GpuHealth& out) const;
    void read_memory(nvml::Device gpu, GpuHealth& out);
    void read_recovery(nvml::Device gpu, GpuHealth& out);
    void read_clocks(nvml::Device gpu, GpuHealth& out);
    void read_use(nvml::Device gpu, GpuHealth& out);
    void read_links(nvml::Device gpu, GpuHealth& out);
    void read_link_errors(nvml::Device gpu, unsigned int link, GpuHealth& out);

    const Nvml& nvml_;
    const std::filesystem::path& root_;
    std::set<std::string> unseen_;
    bool lost_ = false;  // the GPU that is looked at
};

bool Look::good(nvml::Return code, const char* what) {
    if (code == nvml::kErrorGpuIsLost) {
        lost_ = true;
    } else if (code != kSuccess) {
        unseen_.insert(std::string{what} + ": " + nvml_.error(code));
    }
    return code == kSuccess;
}

// Every GPU of the machine that this process may use.
std::optional<std::vector<Candidate>> Look::find() {
    const nvml::Api& api = nvml_.api();
    unsigned int count = 0;
    if (!good(api.count(&count), "GPUs")) {
        return std::nullopt;
    }
    std::vector<Candidate> out;
    count = std::min(count, static_cast<unsigned int>(limits::kGpusPerNode));
    for (unsigned int i = 0; i < count; ++i) {
        Candidate gpu;
        gpu.index = i;
        gpu.code = api.handle(i, &gpu.handle);
        std::array<char, 97> text{};
        if (gpu.code == kSuccess && api.uuid != nullptr &&
            api.uuid(gpu.handle, text.data(), 96) == kSuccess) {
            gpu.uuid = text.data();
        }
        if (gpu.code != nvml::kErrorNoPermission) {
            out.push_back(std::move(gpu));
        }
    }
    return out;
}

struct Chosen {
    std::vector<Candidate> gpus;
    std::vector<std::string> missing;  // UUIDs that no GPU here can have
};

// A lost GPU does not tell its UUID: one that is not found may be any that tells none.
void choose_nameless(const std::vector<Candidate>& all, const std::string& name, Chosen& out) {
    bool any = false;
    for (const Candidate& gpu : all) {
        if (!gpu.uuid.empty()) {
            continue;
        }
        any = true;
        const bool known =
            std::any_of(out.gpus.begin(), out.gpus.end(),
                        [&](const Candidate& chosen) { return chosen.index == gpu.index; });
        if (!known) {
            out.gpus.push_back(gpu);
        }
    }
    if (!any) {
        out.missing.push_back(name);
    }
}

// As the CUDA runtime reads its variable: numbers, or beginnings of UUIDs. With anything else
// (slices of a GPU) all are looked at.
Chosen choose(std::vector<Candidate> all, const std::string* visible) {
    Chosen out;
    if (visible == nullptr) {
        out.gpus = std::move(all);
        return out;
    }
    for (const std::string& item : split(*visible, ',')) {
        const std::string name{trim(item)};
        const auto number = to_int(name);
        const auto found = std::find_if(all.begin(), all.end(), [&](const Candidate& gpu) {
            return number ? &gpu - all.data() == *number
                          : name.starts_with("GPU-") && gpu.uuid.starts_with(name);
        });
        if (name.empty()) {
            continue;
        }
        if (!number && !name.starts_with("GPU-")) {
            return {std::move(all), {}};
        }
        if (found != all.end()) {
            out.gpus.push_back(*found);
        } else if (!number) {
            choose_nameless(all, name, out);
        }
    }
    return out;
}

GpuHealth Look::at(const Candidate& gpu) {
    GpuHealth out;
    out.gpu = static_cast<std::int32_t>(gpu.index);
    if (gpu.code != kSuccess) {
        out.lost = nvml_.error(gpu.code);
        return out;
    }
    lost_ = false;
    identify(gpu.handle, out);
    read_memory(gpu.handle, out);
    read_recovery(gpu.handle, out);
    read_clocks(gpu.handle, out);
    read_use(gpu.handle, out);
    read_links(gpu.handle, out);
    if (lost_) {
        out.lost = nvml_.error(nvml::kErrorGpuIsLost);
    }
    return out;
}

void Look::identify(nvml::Device gpu, GpuHealth& out) const {
    const nvml::Api& api = nvml_.api();
    std::array<char, 97> text{};
    if (unsigned int minor = 0; api.minor != nullptr && api.minor(gpu, &minor) == kSuccess) {
        out.gpu = static_cast<std::int32_t>(minor);
    }
    if (api.name != nullptr && api.name(gpu, text.data(), 96) == kSuccess) {
        out.model = text.data();
    }
    // A GPU that cannot be divided does not know the question.
    unsigned int now = 0;
    unsigned int later = 0;
    if (api.mig_mode != nullptr && api.mig_mode(gpu, &now, &later) == kSuccess) {
        out.mig = now == nvml::kEnabled ? 1 : 0;
    }
    if (nvml::PciInfo pci{}; api.pci != nullptr && api.pci(gpu, &pci) == kSuccess) {
        pci.bus_id[sizeof pci.bus_id - 1] = '\0';
        out.bus = pci.bus_id;
    }
}

// A GPU either remaps rows (Ampere on) or retires pages.
void Look::read_memory(nvml::Device gpu, GpuHealth& out) {
    const nvml::Api& api = nvml_.api();
    unsigned long long errors = 0;
    if (good(api.ecc_errors == nullptr
                 ? nvml::kErrorNotSupported
                 : api.ecc_errors(gpu, nvml::kUncorrected, nvml::kVolatile, &errors),
             "uncorrected memory errors")) {
        out.ecc = static_cast<std::int64_t>(std::min<unsigned long long>(errors, INT64_MAX));
    }
    std::array<unsigned int, 4> rows{};
    auto code = api.remapped_rows == nullptr
                    ? nvml::kErrorNotSupported
                    : api.remapped_rows(gpu, &rows[0], &rows[1], &rows[2], &rows[3]);
    if (code == kSuccess) {
        out.remap = rows[2] != 0 ? 1 : 0;
        out.remap_failed = rows[3] != 0 ? 1 : 0;
        return;
    }
    int pending = 0;
    if (code == nvml::kErrorNotSupported && api.retired_pages_pending != nullptr) {
        code = api.retired_pages_pending(gpu, &pending);
    }
    if (good(code, "repairs of memory that wait")) {
        out.pages = pending == nvml::kEnabled ? 1 : 0;
    }
}

void Look::read_recovery(nvml::Device gpu, GpuHealth& out) {
    const nvml::Api& api = nvml_.api();
    std::array<char, 80> version{};
    if (api.driver_version != nullptr) {
        api.driver_version(version.data(), version.size());
        version.back() = '\0';
    }
    const std::string driver = version.data();
    nvml::FieldValue value{};
    value.field = nvml::field::kRecoveryAction;
    value.result = nvml::kErrorUnknown;  // should the library leave it as it was
    if (api.fields == nullptr ||
        to_int(driver.substr(0, driver.find('.'))).value_or(0) < kRecoveryDriver) {
        value.result = nvml::kErrorNotSupported;
    } else if (const auto code = api.fields(gpu, 1, &value); code != kSuccess) {
        value.result = code;
    }
    if (good(value.result, "the recovery action") && value.type == nvml::kUnsignedInt) {
        out.recovery = static_cast<std::int32_t>(std::min(value.value.ui, 1000U));
    }
}

void Look::read_clocks(nvml::Device gpu, GpuHealth& out) {
    const nvml::Api& api = nvml_.api();
    unsigned long long reasons = 0;
    if (!good(api.clock_reasons == nullptr ? nvml::kErrorNotSupported
                                           : api.clock_reasons(gpu, &reasons),
              "what slows it down")) {
        return;
    }
    auto bits = static_cast<std::int64_t>(reasons) & kSlowdowns;
    if (bits != 0) {
        std::this_thread::sleep_for(kAgain);
        const bool answered = good(api.clock_reasons(gpu, &reasons), "what slows it down");
        bits &= answered ? static_cast<std::int64_t>(reasons) : 0;
    }
    out.slowdown = bits;
    unsigned int degrees = 0;
    if (api.temperature != nullptr &&
        api.temperature(gpu, nvml::kTemperatureGpu, &degrees) == kSuccess) {
        out.temperature = static_cast<std::int32_t>(std::min(degrees, 1000U));
    }
}

// Those of CUDA's multi-process service hold GPUs on purpose.
void Look::read_use(nvml::Device gpu, GpuHealth& out) {
    const nvml::Api& api = nvml_.api();
    std::array<nvml::ProcessInfo, 64> processes{};
    auto count = static_cast<unsigned int>(processes.size());
    if (good(api.processes == nullptr ? nvml::kErrorNotSupported
                                      : api.processes(gpu, &count, processes.data()),
             "who uses it")) {
        count = std::min(count, static_cast<unsigned int>(processes.size()));
        for (unsigned int i = 0; i < count && out.others.size() < kProcesses; ++i) {
            GpuProcessFact one;
            one.pid = processes[i].pid;
            const auto name = read_file(root_ / "proc" / std::to_string(one.pid) / "comm", 64);
            one.name = name ? std::string{trim(*name)} : "";
            if (processes[i].used_memory != nvml::kMemoryNotAvailable) {
                one.memory_mb = static_cast<std::int64_t>(processes[i].used_memory) / kMb;
            }
            if (!one.name.starts_with("nvidia-cuda-mps")) {
                out.others.push_back(std::move(one));
            }
        }
        // Only the newer call leaves out what the driver itself has reserved.
        nvml::MemoryV2 memory{};
        memory.version = nvml::kMemoryV2;
        if (count == 0 && api.memory_v2 != nullptr && api.memory_v2(gpu, &memory) == kSuccess) {
            out.memory_mb = static_cast<std::int64_t>(memory.used) / kMb;
        }
    }
}

void Look::read_links(nvml::Device gpu, GpuHealth& out) {
    const nvml::Api& api = nvml_.api();
    if (api.link_state == nullptr) {
        return;
    }
    for (unsigned int link = 0; link < nvml::kLinks; ++link) {
        int active = 0;
        const auto code = api.link_state(gpu, link, &active);
        if (code == kSuccess && active == nvml::kEnabled) {
            out.links = std::max(out.links, 0) + 1;
            read_link_errors(gpu, link, out);
        } else if (code == kSuccess) {
            out.links = std::max(out.links, 0);
            out.links_down.push_back(static_cast<std::int32_t>(link));
        } else if (code != nvml::kErrorNotSupported && code != nvml::kErrorInvalidArgument) {
            good(code, "NVLinks");
            return;
        }
    }
}

void Look::read_link_errors(nvml::Device gpu, unsigned int link, GpuHealth& out) {
    const nvml::Api& api = nvml_.api();
    if (api.link_errors == nullptr) {
        return;
    }
    const auto count = [&](int counter) {
        unsigned long long value = 0;
        return api.link_errors(gpu, link, counter, &value) == kSuccess
                   ? static_cast<std::int64_t>(std::min<unsigned long long>(value, INT32_MAX))
                   : 0;
    };
    NvlinkErrors errors;
    errors.link = static_cast<std::int32_t>(link);
    errors.crc = count(nvml::kLinkCrcFlit) + count(nvml::kLinkCrcData);
    errors.replays = count(nvml::kLinkReplays);
    errors.recoveries = count(nvml::kLinkRecoveries);
    if (errors.crc + errors.replays + errors.recoveries > 0) {
        out.link_errors.push_back(errors);
    }
}

}  // namespace

GpuLook look_at_gpu_health(const Nvml& nvml, const std::string* visible,
                           const std::filesystem::path& root) {
    Look look{nvml, root};
    GpuLook out;
    if (auto all = look.find()) {
        const Chosen chosen = choose(std::move(*all), visible);
        for (const Candidate& gpu : chosen.gpus) {
            out.gpus.push_back(look.at(gpu));
        }
        for (const std::string& name : chosen.missing) {
            GpuHealth gpu;
            gpu.lost = "the driver does not show " + name;
            out.gpus.push_back(std::move(gpu));
        }
    }
    out.unseen = look.unseen();
    return out;
}

}  // namespace lockstep
