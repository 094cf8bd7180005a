#include "scheduler-integration/slurm/batch_script.hpp"

#include "job/base/digest.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/model/spec/sbatch_options.hpp"

#include <algorithm>

namespace lockstep::slurm {
namespace {

constexpr std::int64_t kCpusPerTask = 65'534;  // 16 bits in Slurm, the last value means "none"

Status check_path(std::string_view what, std::string_view path) {
    if (is_plain_path(path)) {
        return {};
    }
    return fail(Errc::invalid, std::string{what} + " " + dump_json(std::string{path}) +
                                   ": a batch script needs an absolute path of letters, digits "
                                   "and / _ . + -");
}

std::int64_t time_limit(const AttemptRequest& request, const BatchSite& site) {
    const std::int64_t own = request.resources.time_limit_seconds;
    return std::min(own > 0 ? own : site.default_time_limit_seconds, limits::kTimeLimitSeconds);
}

std::int64_t cpus_per_node(const Resources& resources) {
    return std::int64_t{resources.ranks_per_node} * resources.cpus_per_rank;
}

Status check(const AttemptRequest& request, const BatchSite& site) {
    if (!is_job_id(request.job.value) || request.attempt < 1) {
        return fail(Errc::invalid, "no id of a job: " + dump_json(request.job.value));
    }
    for (const auto& checked : {check_path("attempt directory", request.directory),
                                check_path("path of lockstep-agent", site.agent_path),
                                check_path("directory of Slurm's programs",
                                           site.slurm_bin.empty() ? "/bin" : site.slurm_bin)}) {
        if (!checked) {
            return checked;
        }
    }
    std::vector<FieldError> errors;
    if (request.container.runtime == ContainerRuntime::pyxis) {
        // As with the options: holds for every spec that parsed.
        bool plain = only_of(request.container.image, "/_.+@:#-");
        for (const std::string& mount : request.container.mounts) {
            plain = plain && only_of(mount, "/_.+@:-");
        }
        if (!plain) {
            errors.push_back({"/container", "cannot stand in a batch script"});
        }
    }
    if (cpus_per_node(request.resources) > kCpusPerTask) {
        errors.push_back({"/resources/cpus_per_rank",
                          "needs " + std::to_string(cpus_per_node(request.resources)) +
                              " CPUs on a node; Slurm counts to " + std::to_string(kCpusPerTask)});
    }
    const std::int64_t limit = time_limit(request, site);
    if (limit < 1) {
        errors.push_back({"/resources/time_limit", "is required: the partition has no default"});
    } else if (request.signal_seconds >= limit) {
        errors.push_back({"/checkpoint/seconds_before_timeout",
                          "must be less than the time limit, " + format_time_limit(limit)});
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return {};
}

Result<std::string> text_of(const BatchText& parts) {
    std::string text;
    if (!make_batch_text(parts, text)) {
        return fail(Errc::invalid, text + " has a value that cannot stand in a batch script");
    }
    return text;
}

}  // namespace

std::string excluded_nodes(const AttemptRequest& request) {
    std::string out;
    for (const std::string& node : request.exclude) {
        // Names that agents gave: none but a node's of Slurm means anything here.
        if (only_of(node, "-._")) {
            out += (out.empty() ? "" : ",") + node;
        }
    }
    return out;
}

std::string default_time(const BatchSite& site) {
    return format_time_limit(std::min(site.default_time_limit_seconds, limits::kTimeLimitSeconds));
}

bool has_nil(const Release& release) {
    return release >= Release{23, 2};
}

std::string batch_job_name(std::string_view name, const JobId& job, std::int32_t attempt) {
    return batch_job_name(name, std::string_view{job.value}, attempt);
}

Result<BatchScript> make_batch_script(const AttemptRequest& request, const BatchSite& site) {
    LOCKSTEP_TRY(check(request, site));
    SbatchOptions asked = sbatch_options(request, site.gpus_as_gres);
    BatchText parts;
    parts.title = "job " + request.job.value + ", attempt " + std::to_string(request.attempt);
    parts.name = batch_job_name(request.name, request.job, request.attempt);
    parts.directory = request.directory;
    parts.agent_path = site.agent_path;
    parts.slurm_bin = site.slurm_bin;
    parts.sbatch = std::move(asked.sbatch);
    parts.srun = std::move(asked.srun);
    parts.ranks_per_node = std::to_string(asked.ranks_per_node);
    parts.excluded = excluded_nodes(request);
    parts.time = default_time(site);
    parts.has_nil = has_nil(site.release);
    BatchScript out;
    out.name = parts.name;
    out.path = request.directory + "/" + std::string{kBatchFileName};
    out.sbatch_arguments = {"--parsable", out.path};
    auto text = text_of(parts);
    LOCKSTEP_TRY(text);
    out.text = std::move(*text);
    // What differs between attempts that run the same.
    parts.name = batch_job_name(request.name, JobId{std::string{kTemplateJob}}, 1);
    parts.title = "<job>";
    parts.directory = "<attempt>";
    const auto common = text_of(parts);
    LOCKSTEP_TRY(common);
    out.hash = sha256_hex(*common);
    return out;
}

}  // namespace lockstep::slurm
