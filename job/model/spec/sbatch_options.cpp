#include "job/model/spec/sbatch_options.hpp"

#include "job/base/limits.hpp"

#include <algorithm>

namespace lockstep {
namespace {

void add_placement(OptionList& out, const SlurmSpec& slurm) {
    const auto add = [&](const char* option, const std::string& value) {
        if (!value.empty()) {
            out.emplace_back(option, value);
        }
    };
    add("partition", slurm.partition);
    add("account", slurm.account);
    add("qos", slurm.qos);
    add("reservation", slurm.reservation);
    add("constraint", slurm.constraint);
    add("nodelist", slurm.nodelist);
    out.emplace_back("exclude", slurm.exclude);
    if (slurm.exclusive) {
        out.emplace_back("exclusive", "");
    }
}

void add_resources(OptionList& out, const AttemptRequest& request, bool gpus_as_gres) {
    const Resources& resources = request.resources;
    const std::int64_t cpus = std::int64_t{resources.ranks_per_node} * resources.cpus_per_rank;
    out.emplace_back("nodes", std::to_string(resources.allocated_nodes()));
    out.emplace_back("ntasks-per-node", "1");
    out.emplace_back("cpus-per-task", std::to_string(cpus));
    if (resources.memory_mb_per_node > 0) {
        out.emplace_back("mem", std::to_string(resources.memory_mb_per_node) + "M");
    }
    const auto other = request.slurm.directives.find("gres");
    std::string gres = other == request.slurm.directives.end() ? "" : other->second;
    if (resources.gpus_per_node > 0) {
        const std::string gpus = (resources.gpu_type.empty() ? "" : resources.gpu_type + ":") +
                                 std::to_string(resources.gpus_per_node);
        if (gpus_as_gres) {
            gres = "gpu:" + gpus + (gres.empty() ? "" : ",") + gres;
        } else {
            out.emplace_back("gpus-per-node", gpus);
        }
    }
    if (!gres.empty()) {
        out.emplace_back("gres", gres);
    }
    const std::int64_t limit = std::min(resources.time_limit_seconds, limits::kTimeLimitSeconds);
    out.emplace_back("time", limit > 0 ? format_time_limit(limit) : "");
    if (request.signal_seconds > 0) {
        out.emplace_back("signal", "URG@" + std::to_string(request.signal_seconds));
    }
}

}  // namespace

SbatchOptions sbatch_options(const AttemptRequest& request, bool gpus_as_gres) {
    SbatchOptions out;
    out.ranks_per_node = request.resources.ranks_per_node;
    add_placement(out.sbatch, request.slurm);
    add_resources(out.sbatch, request, gpus_as_gres);
    for (const auto& [option, value] : request.slurm.directives) {
        if (option != "gres") {
            out.sbatch.emplace_back(option, value);
        }
    }
    if (request.resources.gpus_per_node > 0) {
        out.srun.emplace_back("gpu-bind",
                              "none");  // every rank sees all GPUs: NCCL needs its peers
    }
    if (request.outlives_nodes) {
        // Without a node the ranks start again on the others, if enough of them are left.
        out.srun.emplace_back("no-kill", "");
    }
    if (request.resources.is_elastic()) {
        // A node whose agent was killed is taken up again; nobody else starts it anew.
        out.srun.emplace_back("agent-restarts", std::to_string(limits::kReturns));
    }
    if (request.container.runtime == ContainerRuntime::pyxis) {
        out.srun.emplace_back("container-image", request.container.image);
        std::string mounts;
        for (const std::string& mount : request.container.mounts) {
            mounts += (mounts.empty() ? "" : ",") + mount;
        }
        if (!mounts.empty()) {
            out.srun.emplace_back("container-mounts", mounts);
        }
    }
    return out;
}

}  // namespace lockstep
