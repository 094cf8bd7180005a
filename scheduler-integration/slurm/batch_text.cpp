#include "scheduler-integration/slurm/batch_text.hpp"

#include "job/base/attempt_end.hpp"
#include "job/base/limits.hpp"

#include <algorithm>

namespace lockstep::slurm {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

const std::string* value_of(const Options& options, std::string_view name) {
    const auto found = std::find_if(options.begin(), options.end(),
                                    [&](const auto& one) { return one.first == name; });
    return found == options.end() ? nullptr : &found->second;
}

std::string value_or_none(const Options& options, std::string_view name) {
    const std::string* value = value_of(options, name);
    return value == nullptr ? "" : *value;
}

// The options in their order: what was asked for, and what every attempt has.
Options lines_of(const BatchText& parts) {
    Options lines{{"job-name", parts.name}};
    for (const auto& [option, asked] : parts.sbatch) {
        std::string value = asked;
        if (option == "exclude") {
            value += (value.empty() || parts.excluded.empty() ? "" : ",") + parts.excluded;
            if (value.empty()) {
                continue;
            }
        } else if (option == "time" && value.empty()) {
            value = parts.time;
        }
        lines.emplace_back(option, value);
    }
    // The site's JobRequeue is 1 by default: Slurm would start the script again by itself.
    lines.emplace_back("no-requeue", "");
    if (value_of(parts.srun, "no-kill") != nullptr) {
        lines.emplace_back("no-kill", "");
    }
    // A failed dependency that was added later is reported as such, not as a cancel.
    lines.emplace_back("kill-on-invalid-dep", "no");
    // NIL came with 23.02. What there was before it, NONE and lists, makes the node start a login
    // shell of the user for its environment, and a login that hangs or asks something ends the job.
    // So ALL: sbatch is run with an environment that is made for it.
    lines.emplace_back("export", parts.has_nil ? "NIL" : "ALL");
    lines.emplace_back("chdir", parts.directory);
    lines.emplace_back("output", parts.directory + "/batch.log");
    lines.emplace_back("open-mode", "append");
    return lines;
}

std::string head(const BatchText& parts) {
    std::string text;
    text += "#!/bin/bash -p\n";
    text += "# Lockstep " + parts.title + ": nodes " + value_or_none(parts.sbatch, "nodes") +
            ", ranks on each " + parts.ranks_per_node + ".\n";
    text += R"(#
# Starts one lockstep-agent on each node, which starts the ranks. Command, environment and secrets
# reach the agents from lockstepd; nothing of them is here. To submit it by hand: sbatch <this file>
#
)";
    return text;
}

std::string notice(const BatchText& parts) {
    std::string text = "#\n";
    if (value_of(parts.sbatch, "signal") != nullptr) {
        text +=
            R"(# --signal reaches every process on the nodes: URG is the one that none minds but the agent, which
# sends the ranks the signal they asked for.
#
)";
    }
    return text;
}

// pyxis (its README, srun's options): the agent runs inside, so it and the job's folder are there
// under their own paths. The entrypoint of an image is not for programs that are given.
std::vector<std::string> container_options(const BatchText& parts) {
    const std::string* image = value_of(parts.srun, "container-image");
    if (image == nullptr) {
        return {};
    }
    // The job's folder, above the attempt's, has the checkpoints too.
    const std::string folder = parts.directory.front() == '/'
                                   ? parts.directory.substr(0, parts.directory.rfind('/'))
                                   : parts.directory;
    std::string mounts =
        folder + ":" + folder + "," + parts.agent_path + ":" + parts.agent_path + ":ro";
    if (const std::string* more = value_of(parts.srun, "container-mounts")) {
        mounts += "," + *more;
    }
    return {"--container-image=" + *image, "--container-mounts=" + mounts,
            "--container-workdir=" + parts.directory + " --no-container-entrypoint"};
}

// What srun's status means for Slurm's records.
std::string last_lines(const BatchText& parts) {
    const std::string cancelled = std::to_string(kCancelledExit);
    return R"([ $status -eq 0 ] || [ -z "$told" ] || status=)" + std::to_string(kToldToEndExit) +
           R"(

# srun gives the highest status of its agents, whose own is what lockstepd says of the job. One that
# was lost on the way does not count where those that were there at the end have left word.
outcome=)" +
           parts.directory + "/" + std::string{kOutcomeFileName} + R"-(
if [ $status -ne 0 ] && [ -r $outcome ]; then
    case "$(<$outcome)" in
        "succeeded $SLURM_JOB_ID") status=0 ;;
        "cancelled $SLURM_JOB_ID") status=)-" +
           cancelled + R"( ;;
    esac
fi
# Cancelled by Lockstep: in Slurm's records, too. That ends this script.
if [ $status -eq )" +
           cancelled + R"( ] && scancel "$SLURM_JOB_ID"; then
    for ((i = 0; i < 600; ++i)); do
        [ -z "$told" ] || break
        sleep 0.1
    done
fi
exit $status
)";
}

// What bash runs. The comments of the script say why.
std::string body(const BatchText& parts) {
    const std::string nodes = value_or_none(parts.sbatch, "nodes");
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
export PATH=)" + (parts.slurm_bin.empty() ? "" : parts.slurm_bin + ":") +
                       R"(/usr/local/bin:/usr/bin:/bin
: "${USER:=$(id -un)}"
export HOME USER
export SLURM_EXPORT_ENV=ALL
# Releases differ in whether srun minds them; it is told the number.
unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK

# srun would end with 2 as if the node had lost this script, and lockstepd would try again.
if [ ! -x )" + parts.agent_path +
                       R"( ]; then
    echo "lockstep: no program )" +
                       parts.agent_path +
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
    option("--cpus-per-task=" + value_or_none(parts.sbatch, "cpus-per-task"));
    if (const std::string* bind = value_of(parts.srun, "gpu-bind")) {
        option("--gpu-bind=" + *bind);
    }
    option(std::string{"--mpi=none --kill-on-bad-exit=0 --wait=0 "} +
           (value_of(parts.srun, "no-kill") != nullptr ? "--no-kill " : "") +
           "--export=ALL --input=none");
    option("--open-mode=append --output=" + parts.directory + "/agent-%5n.log");
    for (const std::string& words : container_options(parts)) {
        option(words);
    }
    const std::string* restarts = value_of(parts.srun, "agent-restarts");
    return text + "    " + parts.agent_path + " run --attempt-dir " + parts.directory +
           (restarts == nullptr ? "" : " --restarts " + *restarts) + parts.agent_words +
           "\nstatus=$?\n" + last_lines(parts);
}

// Holds for every specification that parse_spec() let through; checked again where it matters.
std::string problem_of(const BatchText& parts, const Options& lines) {
    for (const auto& [option, value] : lines) {
        if (!only_of(option, "-") ||
            !only_of(value, option == "comment" ? " _.,:=+@/-" : "_.,:&|*()[]!+=@/-<>")) {
            return "option " + option + " of sbatch";
        }
    }
    for (const auto& [option, value] : parts.srun) {
        if (!only_of(option, "-") || !only_of(value, "_.+@:#,/-")) {
            return "option " + option + " of srun";
        }
    }
    return "";
}

}  // namespace

bool only_of(std::string_view text, std::string_view also) {
    return std::all_of(text.begin(), text.end(), [&](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               also.find(c) != std::string_view::npos;
    });
}

bool is_plain_path(std::string_view path) {
    return path.size() > 1 && path.size() <= limits::kPathBytes && path.front() == '/' &&
           only_of(path, "/_.+-");
}

std::string batch_job_name(std::string_view name, std::string_view job_id, long attempt) {
    const auto slug = [](std::string_view text) {
        std::string out;
        for (const char c : text) {
            const bool upper = c >= 'A' && c <= 'Z';
            const bool kept = only_of({&c, 1}, "._-");
            out += upper ? static_cast<char>(c - 'A' + 'a') : kept ? c : '-';
        }
        return out;
    };
    job_id.remove_prefix(std::min<std::size_t>(3, job_id.size()));  // "ls-"
    const std::string tail = "-" + slug(job_id) + "-a" + std::to_string(attempt);
    return slug(name.substr(
               0, limits::kSlurmJobNameBytes - std::min(limits::kSlurmJobNameBytes, tail.size()))) +
           tail;
}

bool make_batch_text(const BatchText& parts, std::string& out) {
    const Options lines = lines_of(parts);
    if (std::string problem = problem_of(parts, lines); !problem.empty()) {
        out = std::move(problem);
        return false;
    }
    out = head(parts);
    for (const auto& [option, value] : lines) {
        // sbatch reads a line as a shell does, as far as quotes go.
        const bool quoted = value.find(' ') != std::string::npos;
        out += "#SBATCH --" + option +
               (value.empty() ? ""
                : quoted      ? "=\"" + value + "\""
                              : "=" + value) +
               "\n";
    }
    out += notice(parts) + body(parts);
    return true;
}

}  // namespace lockstep::slurm
