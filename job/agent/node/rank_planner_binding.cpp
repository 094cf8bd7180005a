// resources.binding: which CPUs and whose memory each rank of this node is started with.
#include "job/agent/node/rank_planner.hpp"
#include "job/agent/ranks/binding.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/gpu_view.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::string inherited_word(const std::map<std::string, std::string>& environment,
                           const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string{} : found->second;
}

// Of each rank's first GPU: its own slice, else the one of its local rank as frameworks take it.
std::vector<std::int32_t> gpu_node_of_ranks(const JobSpec& spec, std::int32_t first_rank,
                                            std::int32_t ranks,
                                            const std::vector<std::int32_t>& gpus) {
    std::vector<std::int32_t> out;
    for (std::int32_t local = 0; local < ranks && !gpus.empty(); ++local) {
        const auto slice = gpu_slice(spec, first_rank + local);
        const auto count = static_cast<std::int32_t>(gpus.size());
        const bool none = slice && slice->count == 0;
        const auto place = static_cast<std::size_t>(device_of_rank(spec, local));
        const bool named = spec.train && place < spec.train->gpus.size();
        const std::int32_t at = slice            ? slice->first
                                : named          ? spec.train->gpus[place]
                                : count >= ranks ? local
                                                 : local * count / ranks;
        out.push_back(none || at >= count ? -1 : gpus[static_cast<std::size_t>(at)]);
    }
    return out;
}

}  // namespace

std::vector<std::string> RankPlanner::bind(std::vector<RankGroup::RankPlan>& plans) const {
    const Binding binding = spec.resources.binding;
    if (binding == Binding::none || plans.empty()) {
        return {};
    }
    const CpuList allowed = allowed_cpus();
    const CpuTopology topology = read_topology(allowed);
    const auto& own = config.inherited;
    const auto gpus = gpu_node_of_ranks(
        spec, world.first_rank, world.local_ranks,
        spec.resources.gpus_per_node > 0 ? gpu_nodes(own) : std::vector<std::int32_t>{});
    BindingPlan plan;
    const auto confined = to_int(inherited_word(own, "SLURM_CPUS_ON_NODE"));
    if (binding == Binding::cores && confined &&
        static_cast<std::size_t>(*confined) < allowed.size()) {
        // Other jobs' ranks may be on the CPUs that would be taken here.
        plan.ranks.resize(plans.size());
        plan.warnings.push_back("binding: Slurm gave this job " + std::to_string(*confined) +
                                " CPUs of this node and does not confine it to them "
                                "(TaskPlugin): its ranks are not bound");
    } else if (!confined && world.nodes > 1) {
        // The local scheduler: all nodes of the job are this machine.
        const std::int32_t ranks = world.nodes * world.local_ranks;
        const auto before = static_cast<std::size_t>(world.node_rank * world.local_ranks);
        std::vector<std::int32_t> shifted(before, -1);
        shifted.insert(shifted.end(), gpus.begin(), gpus.end());
        plan = plan_binding(binding, ranks, topology, shifted);
        const auto first = plan.ranks.begin() + static_cast<std::ptrdiff_t>(before);
        plan.ranks = {first, first + world.local_ranks};
    } else {
        plan = plan_binding(binding, world.local_ranks, topology, gpus);
    }
    for (std::size_t i = 0; i < plans.size(); ++i) {
        plans[i].process.binding = plan.ranks[i];
        log::info("a rank is bound", {{"rank", plans[i].rank},
                                      {"cpus", cpu_list_text(plan.ranks[i].cpus)},
                                      {"memory_node", plan.ranks[i].memory_node}});
    }
    for (const std::string& warning : plan.warnings) {
        log::warn(warning, {});
    }
    return std::move(plan.warnings);
}

}  // namespace lockstep
