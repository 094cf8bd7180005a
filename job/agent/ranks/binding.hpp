// Which CPUs and whose memory the ranks of a node get: resources.binding, as torchrun's
// --numa-binding. The CPUs are those that the allocation leaves to the agent (its own affinity),
// the NUMA nodes and cores the kernel's (/sys/devices/system). Pure but for the functions that
// read; any thread.
#pragma once

#include "job/model/spec/spec.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Numbers of CPUs, ascending.
using CpuList = std::vector<std::int32_t>;
// The kernel's form, "0-3,8"; nothing: it is not that.
std::optional<CpuList> parse_cpu_list(std::string_view text);
std::string cpu_list_text(const CpuList& cpus);
// What this thread may run on; empty if the kernel does not say.
CpuList allowed_cpus();

struct CpuTopology {
    struct Cpu {
        std::int32_t number = 0;
        std::int32_t node = 0;  // NUMA
        std::int32_t core = 0;  // the lowest CPU of its core, whether it is allowed or not
    };
    std::vector<Cpu> cpus;   // the allowed ones by node, core, number
    std::int32_t nodes = 1;  // with memory or CPUs, of the machine
};
// What /sys does not say is one node and a core for each CPU. `root` is put in front of /sys.
CpuTopology read_topology(const CpuList& allowed, const std::filesystem::path& root = "/");

// The NUMA node of each GPU that CUDA_VISIBLE_DEVICES names in `environment`, in that order, by
// NVIDIA's /proc/driver/nvidia/gpus and /sys/bus/pci; -1: not to be had (MIG devices, no driver, a
// machine that does not say). Numbers count by PCI address; Slurm's, which begin anew in each job,
// are looked up in SLURM_STEP_GPUS.
std::vector<std::int32_t> gpu_nodes(const std::map<std::string, std::string>& environment,
                                    const std::filesystem::path& root = "/");

struct RankBinding {
    CpuList cpus;                   // empty: as the agent
    std::int32_t memory_node = -1;  // preferred; -1: the kernel's choice
};
struct BindingPlan {
    std::vector<RankBinding> ranks;
    std::vector<std::string> warnings;  // what could not be had
};
// For `ranks` ranks that share these CPUs. `gpu_node`: of each rank's GPU, -1 or missing if it has
// none. numa: all CPUs of one node, that of the rank's GPU, else the nodes in turn. cores: the
// cores of that node divided among its ranks, whole cores with all their threads.
BindingPlan plan_binding(Binding binding, std::int32_t ranks, const CpuTopology& topology,
                         const std::vector<std::int32_t>& gpu_node = {});

// While it lives this thread, and with it every process that it starts, is bound so.
class BoundThread {
  public:
    explicit BoundThread(const RankBinding& binding);
    ~BoundThread();
    BoundThread(const BoundThread&) = delete;
    BoundThread& operator=(const BoundThread&) = delete;
    // What the kernel refused; "" if nothing.
    const std::string& problem() const { return problem_; }

  private:
    CpuList before_;
    bool policy_ = false;
    std::string problem_;
};

}  // namespace lockstep
