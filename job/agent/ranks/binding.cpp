#include "job/agent/ranks/binding.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int32_t kMostCpus = 65'536;  // NR_CPUS is 8,192 at most today
constexpr std::size_t kSysFileBytes = 64U << 10U;
constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

std::string trimmed_file(const std::filesystem::path& path) {
    return std::string{trim(read_file(path, kSysFileBytes).value_or(""))};
}

struct FreeCpuSet {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

// 0, or errno.
int bind_thread(const CpuList& cpus) {
    const std::size_t count = static_cast<std::size_t>(cpus.back()) + 1;
    const CpuSet set{CPU_ALLOC(count)};
    const std::size_t size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(size, set.get());
    for (const std::int32_t cpu : cpus) {
        CPU_SET_S(static_cast<std::size_t>(cpu), size, set.get());
    }
    return ::sched_setaffinity(0, size, set.get()) == 0 ? 0 : errno;
}

// Preferred, not bound: a node that is full of page cache ends nobody. -1: back to the default.
int prefer_memory(std::int32_t node) {
    if (node < 0) {
        return ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL) == 0 ? 0 : errno;
    }
    const auto bit = static_cast<std::size_t>(node);
    std::vector<unsigned long> mask(bit / kWordBits + 1);
    mask[bit / kWordBits] |= 1UL << (bit % kWordBits);
    // The kernel takes one bit less than it is told.
    return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * kWordBits + 1) ==
                   0
               ? 0
               : errno;
}

// Ranks of a node of the machine, and what is theirs.
struct NodeShare {
    std::vector<CpuList> cores;
    CpuList cpus;
    std::vector<std::size_t> ranks;
};

std::map<std::int32_t, NodeShare> shares_of(const CpuTopology& topology) {
    std::map<std::int32_t, NodeShare> out;
    std::int32_t last_core = -1;
    for (const auto& cpu : topology.cpus) {
        NodeShare& share = out[cpu.node];
        if (share.cores.empty() || cpu.core != last_core) {
            share.cores.emplace_back();
        }
        last_core = cpu.core;
        share.cores.back().push_back(cpu.number);
        share.cpus.push_back(cpu.number);
    }
    for (auto& [node, share] : out) {
        std::sort(share.cpus.begin(), share.cpus.end());
    }
    return out;
}

// Where a rank without a GPU goes: the nodes one after the other, by their cores.
std::int32_t node_by_turn(const std::map<std::int32_t, NodeShare>& shares, std::size_t rank,
                          std::size_t ranks) {
    std::size_t cores = 0;
    for (const auto& [node, share] : shares) {
        cores += share.cores.size();
    }
    std::size_t at = rank * cores / ranks;
    for (const auto& [node, share] : shares) {
        if (at < share.cores.size()) {
            return node;
        }
        at -= share.cores.size();
    }
    return shares.begin()->first;
}

void divide_cores(const NodeShare& share, std::int32_t node, BindingPlan& plan) {
    const std::size_t ranks = share.ranks.size();
    const std::size_t cores = share.cores.size();
    if (cores < ranks) {
        plan.warnings.push_back("binding: " + std::to_string(ranks) + " ranks and " +
                                std::to_string(cores) + " cores on NUMA node " +
                                std::to_string(node) + ": they share them");
    }
    for (std::size_t i = 0; i < ranks; ++i) {
        CpuList& cpus = plan.ranks[share.ranks[i]].cpus;
        if (cores < ranks) {
            cpus = share.cpus;
            continue;
        }
        for (std::size_t core = i * cores / ranks; core < (i + 1) * cores / ranks; ++core) {
            cpus.insert(cpus.end(), share.cores[core].begin(), share.cores[core].end());
        }
        std::sort(cpus.begin(), cpus.end());
    }
}

struct NvidiaGpu {
    std::string address;  // domain:bus:device.function, lower case
    std::string uuid;
    std::string minor;
};

// By PCI address, as NVML and CUDA_DEVICE_ORDER=PCI_BUS_ID count.
std::vector<NvidiaGpu> nvidia_gpus(const std::filesystem::path& root) {
    std::vector<NvidiaGpu> out;
    std::error_code ec;
    for (const auto& entry :
         std::filesystem::directory_iterator{root / "proc/driver/nvidia/gpus", ec}) {
        NvidiaGpu gpu;
        gpu.address = entry.path().filename().string();
        for (const std::string& line : split(trimmed_file(entry.path() / "information"), '\n')) {
            const auto colon = line.find(':');
            if (colon == std::string::npos) {
                continue;
            }
            const std::string value{trim(std::string_view{line}.substr(colon + 1))};
            if (line.starts_with("GPU UUID")) {
                gpu.uuid = value;
            } else if (line.starts_with("Device Minor")) {
                gpu.minor = value;
            }
        }
        out.push_back(std::move(gpu));
    }
    std::sort(out.begin(), out.end(),
              [](const NvidiaGpu& a, const NvidiaGpu& b) { return a.address < b.address; });
    return out;
}

const NvidiaGpu* gpu_named(const std::vector<NvidiaGpu>& gpus, const std::string& name,
                           const std::string& slurm_name) {
    if (name.starts_with("GPU-")) {  // a prefix is enough for CUDA
        const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const NvidiaGpu& gpu) {
            return gpu.uuid.starts_with(name);
        });
        return found == gpus.end() ? nullptr : &*found;
    }
    if (!slurm_name.empty()) {
        const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const NvidiaGpu& gpu) {
            return gpu.minor == slurm_name;
        });
        return found == gpus.end() ? nullptr : &*found;
    }
    const auto index = to_int(name);
    const bool known = index && *index >= 0 && static_cast<std::size_t>(*index) < gpus.size();
    return known ? &gpus[static_cast<std::size_t>(*index)] : nullptr;
}

}  // namespace

std::optional<CpuList> parse_cpu_list(std::string_view text) {
    CpuList out;
    for (const std::string& part : split(trim(text), ',')) {
        if (part.empty()) {
            continue;
        }
        const auto dash = part.find('-');
        const auto first = to_int(part.substr(0, dash));
        const auto last = dash == std::string::npos ? first : to_int(part.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) {
            return std::nullopt;
        }
        for (auto cpu = *first; cpu <= *last; ++cpu) {
            out.push_back(static_cast<std::int32_t>(cpu));
        }
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

std::string cpu_list_text(const CpuList& cpus) {
    std::string out;
    for (std::size_t i = 0; i < cpus.size();) {
        std::size_t end = i;
        while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) {
            ++end;
        }
        out += (out.empty() ? "" : ",") + std::to_string(cpus[i]);
        out += end == i ? "" : "-" + std::to_string(cpus[end]);
        i = end + 1;
    }
    return out;
}

CpuList allowed_cpus() {
    CpuList out;
    // The kernel refuses a mask that is smaller than its own.
    for (std::size_t count = 1024; count <= static_cast<std::size_t>(kMostCpus); count *= 2) {
        const CpuSet set{CPU_ALLOC(count)};
        const std::size_t size = CPU_ALLOC_SIZE(count);
        CPU_ZERO_S(size, set.get());
        if (::sched_getaffinity(0, size, set.get()) != 0) {
            continue;
        }
        for (std::size_t cpu = 0; cpu < count; ++cpu) {
            if (CPU_ISSET_S(cpu, size, set.get())) {
                out.push_back(static_cast<std::int32_t>(cpu));
            }
        }
        break;
    }
    return out;
}

CpuTopology read_topology(const CpuList& allowed, const std::filesystem::path& root) {
    CpuTopology out;
    std::map<std::int32_t, std::int32_t> node_of;
    std::int32_t nodes = 0;
    std::error_code ec;
    for (const auto& entry :
         std::filesystem::directory_iterator{root / "sys/devices/system/node", ec}) {
        const std::string name = entry.path().filename().string();
        const auto number = name.starts_with("node") ? to_int(name.substr(4)) : std::nullopt;
        if (!number) {
            continue;
        }
        ++nodes;
        for (const std::int32_t cpu :
             parse_cpu_list(trimmed_file(entry.path() / "cpulist")).value_or(CpuList{})) {
            node_of[cpu] = static_cast<std::int32_t>(*number);
        }
    }
    out.nodes = std::max(nodes, 1);
    for (const std::int32_t number : allowed) {
        const auto folder =
            root / "sys/devices/system/cpu" / ("cpu" + std::to_string(number)) / "topology";
        auto siblings = parse_cpu_list(trimmed_file(folder / "thread_siblings_list"));
        const auto node = node_of.find(number);
        CpuTopology::Cpu cpu;
        cpu.number = number;
        cpu.node = node == node_of.end() ? 0 : node->second;
        cpu.core = siblings && !siblings->empty() ? siblings->front() : number;
        out.cpus.push_back(cpu);
    }
    std::sort(out.cpus.begin(), out.cpus.end(), [](const auto& a, const auto& b) {
        return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
    });
    return out;
}

std::vector<std::int32_t> gpu_nodes(const std::map<std::string, std::string>& environment,
                                    const std::filesystem::path& root) {
    const auto words = [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() || found->second.empty() ? std::vector<std::string>{}
                                                                   : split(found->second, ',');
    };
    const auto gpus = nvidia_gpus(root);
    const auto visible = words("CUDA_VISIBLE_DEVICES");
    auto slurm = words("SLURM_STEP_GPUS");
    if (slurm.empty()) {
        slurm = words("SLURM_JOB_GPUS");
    }
    slurm.resize(slurm.size() == visible.size() ? slurm.size() : 0);
    std::vector<std::int32_t> out;
    for (std::size_t i = 0; i < visible.size(); ++i) {
        const NvidiaGpu* gpu = gpu_named(gpus, visible[i], slurm.empty() ? "" : slurm[i]);
        const auto node =
            gpu == nullptr
                ? std::nullopt
                : to_int(trimmed_file(root / "sys/bus/pci/devices" / gpu->address / "numa_node"));
        out.push_back(static_cast<std::int32_t>(node.value_or(-1)));
    }
    return out;
}

BindingPlan plan_binding(Binding binding, std::int32_t ranks, const CpuTopology& topology,
                         const std::vector<std::int32_t>& gpu_node) {
    BindingPlan plan;
    plan.ranks.resize(static_cast<std::size_t>(ranks));
    if (binding == Binding::none) {
        return plan;
    }
    if (topology.cpus.empty()) {
        plan.warnings.emplace_back("binding: the kernel does not say which CPUs there are");
        return plan;
    }
    auto shares = shares_of(topology);
    std::set<std::int32_t> without_cpus;
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
        const std::int32_t wanted = rank < gpu_node.size() ? gpu_node[rank] : -1;
        const bool there = wanted >= 0 && shares.contains(wanted);
        if (wanted >= 0 && !there) {
            without_cpus.insert(wanted);
        }
        const std::int32_t node = there ? wanted : node_by_turn(shares, rank, plan.ranks.size());
        shares[node].ranks.push_back(rank);
        plan.ranks[rank].memory_node = topology.nodes > 1 ? node : -1;
    }
    for (const std::int32_t node : without_cpus) {
        plan.warnings.push_back("binding: GPUs are at NUMA node " + std::to_string(node) +
                                ", of which this job has no CPU");
    }
    for (const auto& [node, share] : shares) {
        if (binding == Binding::cores) {
            divide_cores(share, node, plan);
            continue;
        }
        for (const std::size_t rank : share.ranks) {
            plan.ranks[rank].cpus = share.cpus;
        }
    }
    return plan;
}

BoundThread::BoundThread(const RankBinding& binding) {
    if (!binding.cpus.empty()) {
        before_ = allowed_cpus();
        if (const int number = bind_thread(binding.cpus); number != 0) {
            problem_ = "CPUs " + cpu_list_text(binding.cpus) + ": " + std::strerror(number);
            before_.clear();
        }
    }
    if (binding.memory_node >= 0) {
        const int number = prefer_memory(binding.memory_node);
        policy_ = number == 0;
        if (!policy_) {
            problem_ += (problem_.empty() ? "" : "; ") + std::string{"memory of NUMA node "} +
                        std::to_string(binding.memory_node) + ": " + std::strerror(number);
        }
    }
}

BoundThread::~BoundThread() {
    if (!before_.empty()) {
        bind_thread(before_);
    }
    if (policy_) {
        prefer_memory(-1);
    }
}

}  // namespace lockstep
