// What the Slurm scheduler says of a spec before anything is submitted, and the script it makes.
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::int64_t kDefaultTimeLimit = 24L * 3600;

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
        }
    }
    return out;
}

Result<std::optional<std::string>> SlurmScheduler::script(const AttemptRequest& request) const {
    auto made = slurm::make_batch_script(request, site(request.slurm));
    if (!made) {
        return fail(made.error());
    }
    return std::optional<std::string>{std::move(made->text)};
}

Result<Admission> SlurmScheduler::admit(const JobSpec& spec) const {
    const AttemptRequest template_request =
        attempt_request(JobId{std::string{kTemplateJob}}, 1, spec, "/attempt");
    const auto made = slurm::make_batch_script(template_request, site(spec.slurm));
    if (!made) {
        return fail(made.error());
    }
    Admission out;
    if (!facts_) {
        out.warnings.push_back("Slurm does not answer; the job waits until it does");
        return out;
    }
    if (static_cast<std::int64_t>(made->text.size()) > facts_->config.max_script_bytes) {
        return fail(
            field_errors({{"/slurm", "the batch script would be larger than Slurm takes"}}));
    }
    if (spec.container.runtime == ContainerRuntime::pyxis && facts_->has_pyxis == false) {
        return fail(field_errors(
            {{"/container/runtime", "this Slurm has no pyxis: srun takes no --container-image"}}));
    }
    std::vector<FieldError> errors;
    bool fits_time = false;
    bool fits_nodes = false;
    std::vector<std::string> names = split(spec.slurm.partition, ',');
    if (spec.slurm.partition.empty()) {
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
            continue;
        }
        if (partition->state != "UP") {
            out.warnings.push_back("partition " + name + " is " + partition->state);
        }
        fits_time = fits_time || !partition->max_time ||
                    spec.resources.time_limit_seconds <= *partition->max_time;
        const std::int64_t most = partition->max_nodes
                                      ? std::min(*partition->max_nodes, partition->total_nodes)
                                      : partition->total_nodes;
        fits_nodes = fits_nodes || spec.resources.nodes <= most;
    }
    if (errors.empty() && !fits_time) {
        errors.push_back({"/resources/time_limit", "longer than the partition allows"});
    }
    if (errors.empty() && !fits_nodes) {
        errors.push_back({"/resources/nodes", "more than the partition has"});
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    if (spec.resources.time_limit_seconds == 0) {
        const std::int64_t given = site(spec.slurm).default_time_limit_seconds;
        out.warnings.push_back("no time limit was stated: it will be " + format_time_limit(given));
    }
    return out;
}

}  // namespace lockstep
