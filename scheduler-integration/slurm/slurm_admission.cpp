// What the Slurm scheduler says of a spec before anything is submitted, and the script it makes.
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/hostlist.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace lockstep {
namespace {

constexpr std::int64_t kDefaultTimeLimit = 24L * 3600;

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

// No longer than the longest of any partition, where Slurm's default one may be any of them.
std::int64_t default_of_any(const std::vector<SlurmPartition>& partitions) {
    std::int64_t longest = 0;
    for (const SlurmPartition& one : partitions) {
        longest = std::max(longest, one.max_time.value_or(kDefaultTimeLimit));
    }
    return std::min(longest, kDefaultTimeLimit);
}

std::string first_partition(const SlurmSpec& spec) {
    return split(spec.partition, ',').empty() ? "" : split(spec.partition, ',').front();
}

}  // namespace

slurm::BatchSite SlurmScheduler::site(const SlurmSpec& spec) const {
    slurm::BatchSite out;
    out.agent_path = options_.agent_path;
    out.slurm_bin = options_.slurm_bin;
    out.gpus_as_gres = options_.gpus_as_gres;
    out.default_time_limit_seconds = kDefaultTimeLimit;
    if (facts_) {
        out.release = {facts_->version.major, facts_->version.minor};
        const SlurmPartition* partition = spec.partition.empty()
                                              ? facts_->default_partition()
                                              : facts_->partition(first_partition(spec));
        if (partition != nullptr && (partition->default_time || partition->max_time)) {
            out.default_time_limit_seconds =
                partition->default_time ? *partition->default_time : *partition->max_time;
        } else if (spec.partition.empty() && facts_->default_untold) {
            out.default_time_limit_seconds = default_of_any(facts_->partitions);
        }
    }
    return out;
}

Result<std::optional<std::string>> SlurmScheduler::script(const AttemptRequest& request) const {
    auto made = slurm::make_batch_script(request, site(request.slurm));
    LOCKSTEP_TRY(made);
    return std::optional<std::string>{std::move(made->text)};
}

Task<Result<std::optional<StartEstimate>>> SlurmScheduler::estimate(AttemptRequest request) {
    auto made = slurm::make_batch_script(request, site(request.slurm));
    LOCKSTEP_CO_TRY(made);
    if (estimates_ >= options_.estimates_at_once) {
        co_return fail(Errc::exhausted, "Slurm is asked for others at the moment; ask again");
    }
    ++estimates_;
    auto reply = co_await backend_->estimate(std::move(made->text));
    --estimates_;
    LOCKSTEP_CO_TRY(reply);
    if (!*reply) {
        co_return std::optional<StartEstimate>{};
    }
    StartEstimate out;
    if (!(*reply)->accepted) {
        out.refusal = std::move((*reply)->message);
    } else if ((*reply)->start > 0) {
        out.start = (*reply)->start * 1000;
        out.nodes = std::move((*reply)->nodes);
        out.partition = std::move((*reply)->partition);
    } else {
        co_return fail(Errc::unavailable, "Slurm gives the start as " + (*reply)->start_text +
                                              ", without its time zone");
    }
    co_return std::optional<StartEstimate>{std::move(out)};
}

// What no node of the partitions could ever give, as far as the nodes are known.
void SlurmScheduler::check_node(const Resources& resources, const std::vector<std::string>& names,
                                const std::string& where, std::vector<FieldError>& errors) const {
    ClusterNode most;
    bool known = false;
    for (const ClusterNode& node : nodes_) {
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

Result<Admission> SlurmScheduler::admit(const JobSpec& spec) const {
    const AttemptRequest template_request =
        attempt_request(JobId{std::string{kTemplateJob}}, 1, spec, "/attempt");
    const auto made = slurm::make_batch_script(template_request, site(spec.slurm));
    LOCKSTEP_TRY(made);
    Admission out;
    std::vector<FieldError> errors;
    check_hosts(spec, facts_ ? &facts_->version : nullptr, errors);
    if (!facts_ && !errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    if (!facts_) {
        out.warnings.push_back("Slurm does not answer; the job waits until it does");
        return out;
    }
    if (static_cast<std::int64_t>(made->text.size()) > facts_->config.max_script_bytes) {
        return fail(field_errors(
            {{"/slurm", "the batch script would be larger than Slurm takes: " +
                            std::to_string(made->text.size()) + " of " +
                            std::to_string(facts_->config.max_script_bytes) + " bytes"}}));
    }
    if (spec.container.runtime == ContainerRuntime::pyxis && facts_->has_pyxis == false) {
        return fail(field_errors(
            {{"/container/runtime", "this Slurm has no pyxis: srun takes no --container-image"}}));
    }
    bool all_known = true;
    std::optional<std::int64_t> longest = 0;  // none = no limit
    std::int64_t most_nodes = 0;
    std::vector<std::string> names = split(spec.slurm.partition, ',');
    // Slurm knows in which one it will be.
    const bool in_any = spec.slurm.partition.empty() && facts_->default_untold;
    if (in_any) {
        names.clear();
        for (const SlurmPartition& one : facts_->partitions) {
            names.push_back(one.name);
        }
    } else if (spec.slurm.partition.empty()) {
        const SlurmPartition* usual = facts_->default_partition();
        if (usual == nullptr) {
            return fail(field_errors(
                {{"/slurm/partition", "this cluster has no default partition: name one"}}));
        }
        names = {usual->name};
    }
    for (const std::string& name : names) {
        const SlurmPartition* partition = facts_->partition(name);
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
        check_node(spec.resources, names, where, errors);
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    // A check of the nodes ends by itself, in minutes.
    if (spec.resources.time_limit_seconds == 0 && spec.preflight.mode != PreflightMode::only) {
        const std::int64_t given = site(spec.slurm).default_time_limit_seconds;
        out.warnings.push_back("no time limit was stated: it will be " + format_time_limit(given));
    }
    return out;
}

}  // namespace lockstep
