#include "scheduler-integration/slurm/batch_script.hpp"

#include "job/base/digest.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <array>

namespace lockstep::slurm {
namespace {

constexpr std::int64_t kCpusPerTask = 65'534;  // 16 bits in Slurm, the last value means "none"

bool is_letter_or_digit(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool only(std::string_view text, std::string_view also) {
    return std::all_of(text.begin(), text.end(), [&](char c) {
        return is_letter_or_digit(c) || also.find(c) != std::string_view::npos;
    });
}

// Needs no quotes in bash nor in an #SBATCH line, and is no pattern of sbatch's (%j).
bool is_plain_path(std::string_view path) {
    return path.size() > 1 && path.size() <= limits::kPathBytes && path.front() == '/' &&
           only(path, "/_.+-");
}

Status check_path(std::string_view what, std::string_view path) {
    if (is_plain_path(path)) {
        return {};
    }
    return fail(Errc::invalid, std::string{what} + " " + dump_json(std::string{path}) +
                                   ": a batch script needs an absolute path of letters, digits "
                                   "and / _ . + -");
}

// What differs between attempts that run the same.
struct Identity {
    std::string name;
    std::string title;  // "job ls-…, attempt 1"
    std::string directory;
};

struct Line {
    std::string option;
    std::string value;  // "" = a switch
};

std::int64_t time_limit(const AttemptRequest& request, const BatchSite& site) {
    const std::int64_t own = request.resources.time_limit_seconds;
    return std::min(own > 0 ? own : site.default_time_limit_seconds, limits::kTimeLimitSeconds);
}

std::int64_t cpus_per_node(const Resources& resources) {
    return std::int64_t{resources.ranks_per_node} * resources.cpus_per_rank;
}

std::string excluded(const AttemptRequest& request) {
    std::string out = request.slurm.exclude;
    for (const std::string& node : request.exclude) {
        // Names that agents gave: none but a node's of Slurm means anything here.
        if (only(node, "-._")) {
            out += (out.empty() ? "" : ",") + node;
        }
    }
    return out;
}

void add_placement(std::vector<Line>& lines, const AttemptRequest& request) {
    const SlurmSpec& slurm = request.slurm;
    const auto add = [&](const char* option, const std::string& value) {
        if (!value.empty()) {
            lines.push_back({option, value});
        }
    };
    add("partition", slurm.partition);
    add("account", slurm.account);
    add("qos", slurm.qos);
    add("reservation", slurm.reservation);
    add("constraint", slurm.constraint);
    add("nodelist", slurm.nodelist);
    add("exclude", excluded(request));
    if (slurm.exclusive) {
        lines.push_back({"exclusive", ""});
    }
}

void add_resources(std::vector<Line>& lines, const AttemptRequest& request, const BatchSite& site) {
    const Resources& resources = request.resources;
    lines.push_back({"nodes", std::to_string(resources.allocated_nodes())});
    lines.push_back({"ntasks-per-node", "1"});
    lines.push_back({"cpus-per-task", std::to_string(cpus_per_node(resources))});
    if (resources.memory_mb_per_node > 0) {
        lines.push_back({"mem", std::to_string(resources.memory_mb_per_node) + "M"});
    }
    const auto other = request.slurm.directives.find("gres");
    std::string gres = other == request.slurm.directives.end() ? "" : other->second;
    if (resources.gpus_per_node > 0) {
        const std::string gpus = (resources.gpu_type.empty() ? "" : resources.gpu_type + ":") +
                                 std::to_string(resources.gpus_per_node);
        if (site.gpus_as_gres) {
            gres = "gpu:" + gpus + (gres.empty() ? "" : ",") + gres;
        } else {
            lines.push_back({"gpus-per-node", gpus});
        }
    }
    if (!gres.empty()) {
        lines.push_back({"gres", gres});
    }
    lines.push_back({"time", format_time_limit(time_limit(request, site))});
    if (request.signal_seconds > 0) {
        lines.push_back({"signal", "URG@" + std::to_string(request.signal_seconds)});
    }
}

// NIL came with 23.02. What there was before it, NONE and lists, makes the node start a login shell
// of the user for its environment, and a login that hangs or asks something ends the job. So ALL:
// lockstepd runs sbatch with an environment of its own making.
bool has_nil(const BatchSite& site) {
    return site.release >= Release{23, 2};
}

std::vector<Line> options(const AttemptRequest& request, const BatchSite& site,
                          const Identity& identity) {
    std::vector<Line> lines;
    lines.push_back({"job-name", identity.name});
    add_placement(lines, request);
    add_resources(lines, request, site);
    for (const auto& [option, value] : request.slurm.directives) {
        if (option != "gres") {
            lines.push_back({option, value});
        }
    }
    // The site's JobRequeue is 1 by default: Slurm would start the script again by itself.
    lines.push_back({"no-requeue", ""});
    if (request.outlives_nodes) {
        // Without a node the ranks start again on the others, if enough of them are left.
        lines.push_back({"no-kill", ""});
    }
    // A dependency that somebody gave it later and that fails is told as such, not as a cancel.
    lines.push_back({"kill-on-invalid-dep", "no"});
    lines.push_back({"export", has_nil(site) ? "NIL" : "ALL"});
    lines.push_back({"chdir", identity.directory});
    lines.push_back({"output", identity.directory + "/" + std::string{kBatchLogName}});
    lines.push_back({"open-mode", "append"});
    return lines;
}

std::string head(const AttemptRequest& request, const Identity& identity) {
    const Resources& resources = request.resources;
    std::string text;
    text += "#!/bin/bash -p\n";
    text += "# Lockstep " + identity.title + ": nodes " +
            std::to_string(resources.allocated_nodes()) + ", ranks on each " +
            std::to_string(resources.ranks_per_node) + ".\n";
    text += R"(#
# Starts one lockstep-agent on each node, which starts the ranks. Command, environment and secrets
# reach the agents from lockstepd; nothing of them is here. To submit it by hand: sbatch <this file>
#
)";
    return text;
}

std::string notice(const AttemptRequest& request) {
    std::string text = "#\n";
    if (request.signal_seconds > 0) {
        text +=
            R"(# --signal reaches every process on the nodes: URG is the one that none minds but the agent, which
# sends the ranks the signal they asked for.
#
)";
    }
    return text;
}

std::string parent_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

// pyxis (its README, srun's options): the agent runs inside, so it and the job's folder are there
// under their own paths. The entrypoint of an image is not for programs that are given.
std::vector<std::string> container_options(const AttemptRequest& request, const BatchSite& site,
                                           const Identity& identity) {
    if (request.container.runtime != ContainerRuntime::pyxis) {
        return {};
    }
    // The job's folder, above the attempt's, has the checkpoints too.
    const std::string folder =
        identity.directory.front() == '/' ? parent_of(identity.directory) : identity.directory;
    std::string mounts =
        folder + ":" + folder + "," + site.agent_path + ":" + site.agent_path + ":ro";
    for (const std::string& mount : request.container.mounts) {
        mounts += "," + mount;
    }
    return {"--container-image=" + request.container.image, "--container-mounts=" + mounts,
            "--container-workdir=" + identity.directory + " --no-container-entrypoint"};
}

// What bash runs. The comments of the script say why.
std::string body(const AttemptRequest& request, const BatchSite& site, const Identity& identity) {
    const Resources& resources = request.resources;
    const std::string nodes = std::to_string(resources.allocated_nodes());
    std::string text = R"(
set -u
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "lockstep: this is a batch script: submit it with sbatch" >&2
    exit 64
fi

# An attempt starts once. If Slurm starts this script again all the same, its ranks have run already:
# lockstepd makes a new attempt, with a script of its own.
if [ "${SLURM_RESTART_COUNT:-0}" -ne 0 ]; then
    echo "lockstep: Slurm started job $SLURM_JOB_ID again (restart $SLURM_RESTART_COUNT): not running" >&2
    exit )" + std::to_string(kRestartedExit) +
                       R"(
fi

# --export leaves these to the script, and would keep srun from passing anything on.
export PATH=)" + (site.slurm_bin.empty() ? "" : site.slurm_bin + ":") +
                       R"(/usr/local/bin:/usr/bin:/bin
: "${USER:=$(id -un)}"
export HOME USER
export SLURM_EXPORT_ENV=ALL
# Releases differ in whether srun minds them; it is told the number.
unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK

# srun would end with 2 as if the node had lost this script, and lockstepd would try again.
if [ ! -x )" + site.agent_path +
                       R"( ]; then
    echo "lockstep: no program )" +
                       site.agent_path +
                       R"( on ${SLURMD_NODENAME:-this node}" >&2
    exit )" + std::to_string(kNoAgentExit) +
                       R"(
fi

# When Slurm ends the job it tells the agents itself; told once more by this script, srun would kill
# them at once. The script outlives the signal, ends when srun ends, and says that it was told to.
told=
trap 'told=yes' TERM

# An agent that ends early or fails must not take the others along: lockstepd decides about them
# (--kill-on-bad-exit=0, --wait=0, whatever the site's defaults are).
srun \
)";
    const auto option = [&](const std::string& words) { text += "    " + words + " \\\n"; };
    option("--nodes=" + nodes + " --ntasks=" + nodes + " --ntasks-per-node=1");
    option("--cpus-per-task=" + std::to_string(cpus_per_node(resources)));
    if (resources.gpus_per_node > 0) {
        option("--gpu-bind=none");  // every rank sees all GPUs of the node: NCCL needs its peers
    }
    option(std::string{"--mpi=none --kill-on-bad-exit=0 --wait=0 "} +
           (request.outlives_nodes ? "--no-kill " : "") + "--export=ALL --input=none");
    option("--open-mode=append --output=" + identity.directory + "/agent-%5n.log");
    for (const std::string& words : container_options(request, site, identity)) {
        option(words);
    }
    // With min_nodes a node whose agent was killed is taken up again; nobody else starts it anew.
    const std::string restarts =
        resources.is_elastic() ? " --restarts " + std::to_string(limits::kReturns) : "";
    return text + "    " + site.agent_path + " run --attempt-dir " + identity.directory + restarts +
           "\nstatus=$?\n[ $status -eq 0 ] || [ -z \"$told\" ] || status=" +
           std::to_string(kToldToEndExit) + "\nexit $status\n";
}

Result<std::string> compose(const AttemptRequest& request, const BatchSite& site,
                            const Identity& identity) {
    std::string text = head(request, identity);
    for (const auto& [option, value] : options(request, site, identity)) {
        // Holds for every spec that parse_spec() let through; checked again where it matters.
        if (!only(option, "-") ||
            !only(value, option == "comment" ? " _.,:=+@/-" : "_.,:&|*()[]!+=@/-<>")) {
            return fail(Errc::invalid, "option " + dump_json(option) + " of sbatch: " +
                                           dump_json(value) + " cannot stand in a batch script");
        }
        // sbatch reads a line as a shell does, as far as quotes go.
        const bool quoted = value.find(' ') != std::string::npos;
        text += "#SBATCH --" + option +
                (value.empty() ? ""
                 : quoted      ? "=\"" + value + "\""
                               : "=" + value) +
                "\n";
    }
    text += notice(request);
    return text + body(request, site, identity);
}

std::string slug(std::string_view name, std::size_t bytes) {
    std::string out;
    for (const char c : name.substr(0, bytes)) {
        const bool upper = c >= 'A' && c <= 'Z';
        const bool kept = is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
        out += upper ? static_cast<char>(c - 'A' + 'a') : kept ? c : '-';
    }
    return out;
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
        bool plain = only(request.container.image, "/_.+@:#-");
        for (const std::string& mount : request.container.mounts) {
            plain = plain && only(mount, "/_.+@:-");
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

}  // namespace

std::string batch_job_name(std::string_view name, const JobId& job, std::int32_t attempt) {
    const std::string_view ulid = std::string_view{job.value}.substr(3);
    const std::string tail = "-" + slug(ulid, ulid.size()) + "-a" + std::to_string(attempt);
    return slug(name, kJobNameBytes - tail.size()) + tail;
}

Result<BatchScript> make_batch_script(const AttemptRequest& request, const BatchSite& site) {
    if (const auto good = check(request, site); !good) {
        return fail(good.error());
    }
    BatchScript out;
    out.name = batch_job_name(request.name, request.job, request.attempt);
    out.path = request.directory + "/" + std::string{kBatchFileName};
    out.sbatch_arguments = {"--parsable", out.path};
    const Identity own{out.name,
                       "job " + request.job.value + ", attempt " + std::to_string(request.attempt),
                       request.directory};
    auto text = compose(request, site, own);
    if (!text) {
        return fail(text.error());
    }
    out.text = std::move(*text);
    const Identity nobody{batch_job_name(request.name, JobId{std::string{kTemplateJob}}, 1),
                          "<job>", "<attempt>"};
    const auto common = compose(request, site, nobody);
    if (!common) {
        return fail(common.error());
    }
    out.hash = sha256_hex(*common);
    return out;
}

}  // namespace lockstep::slurm
