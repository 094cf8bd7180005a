// What is made of what NVML tells of a node's GPUs.
#include "job/base/text.hpp"
#include "job/model/limits/model_limits.hpp"
#include "job/model/preflight/preflight_devices.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

// A GPU that nobody uses holds a few hundred MiB for its driver; more without a process is what a
// process left behind that could not be ended.
constexpr std::int64_t kIdleMb = 1024;

struct GpuReport {
    const PreflightNode& node;
    bool fails;  // whether what fails may fail the node
    std::vector<PreflightFinding>& out;

    void fail(std::string_view check, std::string found, std::string expected) const {
        add(check, std::move(found), std::move(expected), fails);
    }
    void warn(std::string_view check, std::string found, std::string expected) const {
        add(check, std::move(found), std::move(expected), false);
    }

  private:
    void add(std::string_view check, std::string found, std::string expected, bool failed) const {
        out.push_back({node.slot, node.node, std::string{check}, std::move(found),
                       std::move(expected), failed});
    }
};

// "GPU 3 (0000:3B:00.0)"
std::string name_of(const GpuHealth& gpu) {
    if (gpu.gpu < 0) {
        return "a GPU";
    }
    return "GPU " + std::to_string(gpu.gpu) + (gpu.bus.empty() ? "" : " (" + gpu.bus + ")");
}

std::string count_of(std::int64_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string list_of(const std::vector<std::string>& items) {
    std::string out;
    for (std::size_t i = 0; i < items.size() && i < limits::kPreflightGpuItemsNamed; ++i) {
        out += (i == 0 ? "" : ", ") + items[i];
    }
    return items.size() > limits::kPreflightGpuItemsNamed
               ? out + " and " + std::to_string(items.size() - limits::kPreflightGpuItemsNamed) +
                     " more"
               : out;
}

// Its data cannot be trusted, or not for long; a reset mends the first and the last two.
void check_memory(const GpuReport& report, const GpuHealth& gpu) {
    if (gpu.ecc > 0) {
        report.fail("gpu_memory",
                    name_of(gpu) + " has had " + count_of(gpu.ecc, "uncorrected memory error") +
                        " since its driver was loaded",
                    "none; a reset of the GPU restarts the count");
    }
    if (gpu.remap_failed > 0) {
        report.fail("gpu_memory", name_of(gpu) + " could not remap a faulty row of its memory",
                    "memory that can be repaired; the GPU is to be replaced");
    }
    if (gpu.remap > 0) {
        report.fail("gpu_memory", name_of(gpu) + " has faulty rows of memory yet to be remapped",
                    "none that waits; a reset of the GPU remaps them");
    }
    if (gpu.pages > 0) {
        report.fail("gpu_memory", name_of(gpu) + " has faulty pages of memory yet to be retired",
                    "none that waits; a reset of the GPU retires them");
    }
}

// The driver's own verdict.
void check_recovery(const GpuReport& report, const GpuHealth& gpu) {
    // nvmlDeviceGpuRecoveryAction_t, nvml.h; numbers of newer drivers have no words here.
    constexpr std::array<std::string_view, 5> kActions{
        "", "a reset of the GPU", "a reboot of the node",
        "an end of all peer-to-peer traffic of the GPU",
        "a reset of the GPU once nothing uses its peers"};
    if (gpu.recovery <= 0) {
        return;
    }
    const auto number = static_cast<std::size_t>(gpu.recovery);
    report.fail("gpu_recovery",
                name_of(gpu) + ": its driver asks for " +
                    (number < kActions.size() ? std::string{kActions[number]}
                                              : "recovery action " + std::to_string(number)),
                "a GPU that needs no recovery");
}

// It may be over when the ranks run, or come again: no reason to leave the node out.
void check_clocks(const GpuReport& report, const GpuHealth& gpu) {
    if (gpu.slowdown <= 0 || (gpu.slowdown & kSlowdowns) == 0) {
        return;
    }
    std::vector<std::string> why;
    if ((gpu.slowdown & (kSlowdownThermal | kSlowdownSoftwareThermal)) != 0) {
        why.emplace_back("heat");
    }
    if ((gpu.slowdown & kSlowdownPowerBrake) != 0) {
        why.emplace_back("the power brake");
    }
    if (why.empty()) {
        why.emplace_back("its hardware");
    }
    report.warn("gpu_clocks",
                name_of(gpu) + " is slowed down by " + list_of(why) +
                    (gpu.temperature < 0 ? "" : ", at " + std::to_string(gpu.temperature) + " °C"),
                "clocks that neither heat nor power holds down");
}

// Of a node that jobs share they may be another job's by right.
void check_use(const GpuReport& report, const GpuHealth& gpu) {
    std::vector<std::string> who;
    who.reserve(gpu.others.size());
    for (const GpuProcessFact& one : gpu.others) {
        who.push_back(std::to_string(one.pid) + (one.name.empty() ? "" : " " + one.name) +
                      (one.memory_mb < 0 ? "" : " with " + std::to_string(one.memory_mb) + " MiB"));
    }
    if (!who.empty()) {
        report.warn("gpu_in_use",
                    name_of(gpu) + " is used by " + (who.size() == 1 ? "process " : "processes ") +
                        list_of(who),
                    "a GPU that nothing else uses");
    } else if (gpu.memory_mb > kIdleMb) {
        report.warn("gpu_in_use",
                    name_of(gpu) + " has " + std::to_string(gpu.memory_mb) +
                        " MiB in use and no process shows that holds them",
                    "at most " + std::to_string(kIdleMb) + " MiB without a process");
    }
}

// They are counted from the driver's start on: an old one is no reason to leave the node out.
void check_links(const GpuReport& report, const GpuHealth& gpu) {
    std::vector<std::string> links;
    for (const NvlinkErrors& one : gpu.link_errors) {
        std::vector<std::string> what;
        if (one.crc > 0) {
            what.push_back(count_of(one.crc, "CRC error"));
        }
        if (one.replays > 0) {
            what.push_back(count_of(one.replays, "replay"));
        }
        if (one.recoveries > 0) {
            what.push_back(std::to_string(one.recoveries) +
                           (one.recoveries == 1 ? " recovery" : " recoveries"));
        }
        if (!what.empty()) {
            links.push_back("link " + std::to_string(one.link) + ": " + list_of(what));
        }
    }
    if (!links.empty()) {
        report.warn("nvlink",
                    name_of(gpu) + " has counted errors of its NVLinks (" + list_of(links) + ")",
                    "none since its driver was loaded");
    }
}

// It may be on purpose, and says why there are no plots and why NCCL may not start: to NCCL ranks
// of one host whose GPUs have the same PCI address are on the same GPU (init.cc, "Duplicate GPU
// detected"), as two slices are.
void check_division(const GpuReport& report, const PreflightNode& node) {
    std::vector<std::string> divided;
    for (const GpuHealth& gpu : node.facts.gpu.health) {
        if (gpu.mig == 1) {
            divided.push_back(name_of(gpu));
        }
    }
    if (!divided.empty()) {
        report.warn("gpu_mig",
                    list_of(divided) + (divided.size() == 1 ? " is" : " are") +
                        " divided into slices (MIG)",
                    "whole GPUs: a process sees one slice, NVML tells no use of a slice, and an "
                    "older NCCL refuses two slices of one GPU");
    }
}

// How many active NVLinks most GPUs of each model have; of two numbers as frequent the larger.
std::map<std::string, std::int32_t> usual_links(const std::vector<PreflightNode>& nodes) {
    std::map<std::string, std::map<std::int32_t, std::size_t>> votes;
    for (const PreflightNode& node : nodes) {
        for (const GpuHealth& gpu : node.facts.gpu.health) {
            if (gpu.links >= 0) {
                ++votes[gpu.model][gpu.links];
            }
        }
    }
    std::map<std::string, std::int32_t> out;
    for (const auto& [model, counts] : votes) {
        std::size_t most = 0;
        for (const auto& [links, count] : counts) {
            if (count >= most) {
                most = count;
                out[model] = links;
            }
        }
    }
    return out;
}

// "NVIDIA H100 80GB HBM3", of a node with several kinds each once; "" = not known.
std::string models_of(const PreflightNode& node) {
    std::set<std::string> models;
    for (const GpuHealth& gpu : node.facts.gpu.health) {
        if (!gpu.model.empty()) {
            models.insert(gpu.model);
        }
    }
    return list_of({models.begin(), models.end()});
}

using PciPlace = std::array<std::uint32_t, 3>;  // domain, bus, device

// "0000:3b:00" of the kernel's log, "00000000:3B:00.0" of NVML.
std::optional<PciPlace> place_of_pci(std::string_view text) {
    const auto parts = split(text.substr(0, text.find('.')), ':');
    PciPlace out{};
    if (parts.size() != out.size()) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        const char* const end = parts[i].data() + parts[i].size();
        const auto read = std::from_chars(parts[i].data(), end, out[i], 16);
        if (read.ec != std::errc{} || read.ptr != end) {
            return std::nullopt;
        }
    }
    return out;
}

}  // namespace

bool is_of_other_gpu(const std::string& fault, const GpuFacts& gpus, std::int32_t wanted) {
    constexpr std::string_view kBefore = " of PCI:";
    const auto at = fault.find(kBefore);
    if (at == std::string::npos || static_cast<std::int64_t>(gpus.health.size()) < wanted) {
        return false;
    }
    const std::string_view rest = std::string_view{fault}.substr(at + kBefore.size());
    const auto place = place_of_pci(rest.substr(0, rest.find(' ')));
    return place && !gpus.health.empty() &&
           std::all_of(gpus.health.begin(), gpus.health.end(), [&](const GpuHealth& gpu) {
               const auto own = place_of_pci(gpu.bus);
               return own && *own != *place;
           });
}

void check_gpu_health(const PreflightNode& node, const JobSpec& spec,
                      std::vector<PreflightFinding>& out) {
    const GpuReport report{node, spec.resources.gpus_per_node > 0, out};
    for (const GpuHealth& gpu : node.facts.gpu.health) {
        if (!gpu.lost.empty()) {
            report.fail("gpu", name_of(gpu) + " does not answer its driver: " + gpu.lost,
                        "a GPU that answers");
            continue;
        }
        check_memory(report, gpu);
        check_recovery(report, gpu);
        check_clocks(report, gpu);
        check_use(report, gpu);
        check_links(report, gpu);
    }
    check_division(report, node);
    // Only who asks about the nodes wants to know what is not known of them.
    if (spec.preflight.mode == PreflightMode::only && !node.facts.gpu.unseen.empty()) {
        report.warn("gpu_unseen", "not checked: " + list_of(node.facts.gpu.unseen),
                    "a driver and rights that show it");
    }
}

// The slowest sets the pace of all, and the smallest memory the batch: nothing that fails.
void compare_gpu_models(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                        std::vector<PreflightFinding>& out) {
    const bool asked = spec.slurm.constraint.find('|') != std::string::npos;
    if (spec.resources.gpus_per_node == 0 || asked) {
        return;
    }
    std::map<std::int32_t, std::string> models;  // by slot, of nodes whose GPUs are known
    std::map<std::string, std::size_t> votes;
    for (const PreflightNode& node : nodes) {
        if (std::string own = models_of(node); !own.empty()) {
            ++votes[own];
            models[node.slot] = std::move(own);
        }
    }
    std::string usual;
    for (const auto& [slot, own] : models) {
        usual = usual.empty() || votes[own] > votes[usual] ? own : usual;
    }
    for (const PreflightNode& node : nodes) {
        const auto own = models.find(node.slot);
        if (own != models.end() && own->second != usual) {
            const GpuReport report{node, false, out};
            report.warn("gpu_model", "its GPUs are " + own->second,
                        usual + ", as " + std::to_string(votes[usual]) + " of " +
                            std::to_string(models.size()) + " nodes have");
        }
    }
}

// Some active and some not is a broken link. None at all may be a card without a bridge.
void compare_nvlinks(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                     std::vector<PreflightFinding>& out) {
    const auto usual = usual_links(nodes);
    for (const PreflightNode& node : nodes) {
        const GpuReport report{node, spec.resources.gpus_per_node > 0, out};
        for (const GpuHealth& gpu : node.facts.gpu.health) {
            const auto wanted = usual.find(gpu.model);
            if (gpu.links < 0 || wanted == usual.end() || gpu.links >= wanted->second) {
                continue;
            }
            std::vector<std::string> down;
            down.reserve(gpu.links_down.size());
            for (const std::int32_t link : gpu.links_down) {
                down.push_back(std::to_string(link));
            }
            const std::string found = name_of(gpu) + " has " +
                                      count_of(gpu.links, "active NVLink") +
                                      (down.empty() ? "" : "; inactive: " + list_of(down));
            const std::string expected =
                std::to_string(wanted->second) + ", as most GPUs of its model here have";
            gpu.links > 0 ? report.fail("nvlink", found, expected)
                          : report.warn("nvlink", found, expected);
        }
    }
}

}  // namespace lockstep
