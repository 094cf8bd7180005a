#include "scheduler-integration/slurm/scheduler/admission.hpp"

#include "job/base/text.hpp"
#include "scheduler-integration/slurm/hostlist.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace lockstep {
namespace {

// From here on Slurm chooses among the nodes of a list that is longer than the job (its CHANGELOG).
constexpr SlurmVersion kChoosesOfNodelist{23, 2, 0};

// sbatch: "invalid number of nodes (-N 2-1)", "Invalid node name specified". `version`: nullptr
// while it is not known.
void check_hosts(const JobSpec& spec, const SlurmVersion* version,
                 std::vector<FieldError>& errors) {
    const auto wanted = expand_hostlist(spec.slurm.nodelist);
    if (spec.slurm.nodelist.empty() || !wanted) {
        return;
    }
    const std::set<std::string> names{wanted->begin(), wanted->end()};
    const std::int64_t nodes = spec.resources.allocated_nodes();
    if (static_cast<std::int64_t>(names.size()) > nodes && version != nullptr &&
        *version < kChoosesOfNodelist) {
        errors.push_back({"/slurm/nodelist",
                          "names " + std::to_string(names.size()) +
                              " nodes, and every one of them is part of the job: /resources/nodes" +
                              (spec.resources.spares > 0 ? " and spares ask" : " asks") + " for " +
                              std::to_string(nodes)});
    }
    const auto not_wanted = expand_hostlist(spec.slurm.exclude);
    for (const std::string& name : not_wanted.value_or(std::vector<std::string>{})) {
        if (names.contains(name)) {
            errors.push_back({"/slurm/exclude", name + " is in /slurm/nodelist"});
            break;
        }
    }
}

// What no node of the partitions could ever give, as far as the nodes are known.
void check_node(const std::vector<ClusterNode>& nodes, const Resources& resources,
                const std::vector<std::string>& names, const std::string& where,
                std::vector<FieldError>& errors) {
    ClusterNode most;
    bool known = false;
    for (const ClusterNode& node : nodes) {
        if (std::any_of(names.begin(), names.end(), [&](const std::string& name) {
                return std::find(node.partitions.begin(), node.partitions.end(), name) !=
                       node.partitions.end();
            })) {
            known = true;
            most.cpus = std::max(most.cpus, node.cpus);
            most.gpus = std::max(most.gpus, node.gpus);
            for (const auto& [type, count] : node.gpu_types) {
                most.gpu_types[type] = std::max(most.gpu_types[type], count);
            }
            most.memory_mb = std::max(most.memory_mb, node.memory_mb);
        }
    }
    if (!known) {
        return;
    }
    const auto no_more = [&](std::int64_t number) {
        return "no node of " + where + " has so many: at most " + std::to_string(number);
    };
    if (resources.gpu_type.empty() && resources.gpus_per_node > most.gpus) {
        errors.push_back({"/resources/gpus_per_node", no_more(most.gpus)});
    }
    if (const auto typed = most.gpu_types.find(resources.gpu_type); resources.gpu_type.empty()) {
        // any will do
    } else if (typed == most.gpu_types.end()) {
        std::string types;
        for (const auto& [type, count] : most.gpu_types) {
            types += (types.empty() ? "" : ", ") + type;
        }
        errors.push_back(
            {"/resources/gpu_type",
             "no node of " + where + " has GPUs of this type" +
                 (types.empty() ? "; they have no types: leave it out" : "; there are " + types)});
    } else if (resources.gpus_per_node > typed->second) {
        errors.push_back({"/resources/gpus_per_node", no_more(typed->second)});
    }
    if (std::int64_t{resources.ranks_per_node} * resources.cpus_per_rank > most.cpus) {
        errors.push_back({"/resources/cpus_per_rank", no_more(most.cpus) + " for all its ranks"});
    }
    if (most.memory_mb > 0 && resources.memory_mb_per_node > most.memory_mb) {
        errors.push_back({"/resources/memory_mb_per_node", no_more(most.memory_mb)});
    }
}

}  // namespace

Result<Admission> admit_to_slurm(const JobSpec& spec, const SlurmFacts* facts,
                                 const std::vector<ClusterNode>& nodes,
                                 const slurm::BatchSite& site) {
    const AttemptRequest template_request =
        attempt_request(JobId{std::string{kTemplateJob}}, 1, spec, "/attempt");
    const auto made = slurm::make_batch_script(template_request, site);
    LOCKSTEP_TRY(made);
    Admission out;
    std::vector<FieldError> errors;
    check_hosts(spec, facts != nullptr ? &facts->version : nullptr, errors);
    if (facts == nullptr && !errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    if (facts == nullptr) {
        out.warnings.push_back("Slurm does not answer; the job waits until it does");
        return out;
    }
    if (static_cast<std::int64_t>(made->text.size()) > facts->config.max_script_bytes) {
        return fail(field_errors(
            {{"/slurm", "the batch script would be larger than Slurm takes: " +
                            std::to_string(made->text.size()) + " of " +
                            std::to_string(facts->config.max_script_bytes) + " bytes"}}));
    }
    if (spec.container.runtime == ContainerRuntime::pyxis && facts->has_pyxis == false) {
        return fail(field_errors(
            {{"/container/runtime", "this Slurm has no pyxis: srun takes no --container-image"}}));
    }
    bool all_known = true;
    std::optional<std::int64_t> longest = 0;  // none = no limit
    std::int64_t most_nodes = 0;
    std::vector<std::string> names = split(spec.slurm.partition, ',');
    // Slurm knows in which one it will be.
    const bool in_any = spec.slurm.partition.empty() && facts->default_untold;
    if (in_any) {
        names.clear();
        for (const SlurmPartition& one : facts->partitions) {
            names.push_back(one.name);
        }
    } else if (spec.slurm.partition.empty()) {
        const SlurmPartition* usual = facts->default_partition();
        if (usual == nullptr) {
            return fail(field_errors(
                {{"/slurm/partition", "this cluster has no default partition: name one"}}));
        }
        names = {usual->name};
    }
    for (const std::string& name : names) {
        const SlurmPartition* partition = facts->partition(name);
        if (partition == nullptr) {
            errors.push_back({"/slurm/partition", "there is no partition " + name});
            all_known = false;
            continue;
        }
        if (partition->state != "UP" && !in_any) {
            out.warnings.push_back("partition " + name + " is " + partition->state);
        }
        longest = !longest || !partition->max_time ? std::optional<std::int64_t>{}
                                                   : std::max(*longest, *partition->max_time);
        most_nodes = std::max(most_nodes, partition->max_nodes ? std::min(*partition->max_nodes,
                                                                          partition->total_nodes)
                                                               : partition->total_nodes);
    }
    if (all_known) {
        const std::string where = names.size() == 1 ? "partition " + names.front()
                                  : in_any          ? "any partition"
                                                    : "these partitions";
        if (longest && spec.resources.time_limit_seconds > *longest) {
            errors.push_back(
                {"/resources/time_limit",
                 "longer than " + where + " allows: at most " + format_time_limit(*longest)});
        }
        if (spec.resources.allocated_nodes() > most_nodes) {
            errors.push_back(
                {"/resources/nodes",
                 "more than " + where + " has or allows: at most " + std::to_string(most_nodes)});
        }
        check_node(nodes, spec.resources, names, where, errors);
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    // A check of the nodes ends by itself, in minutes.
    if (spec.resources.time_limit_seconds == 0 && spec.preflight.mode != PreflightMode::only) {
        const std::int64_t given = site.default_time_limit_seconds;
        out.warnings.push_back("no time limit was stated: it will be " + format_time_limit(given));
    }
    return out;
}

}  // namespace lockstep
