#include "job/cli/run_launchers.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace lockstep::cli {
namespace {

// --name=VALUE or --name VALUE among a launcher's own options, either spelling of - and _.
std::string option_of(const std::vector<std::string>& command, std::size_t from, std::size_t to,
                      std::initializer_list<std::string_view> names) {
    for (std::size_t i = from; i < to && i < command.size(); ++i) {
        std::string word = command[i].substr(0, command[i].find('='));
        std::replace(word.begin(), word.end(), '_', '-');
        if (std::find(names.begin(), names.end(), word) == names.end()) {
            continue;
        }
        const std::size_t equals = command[i].find('=');
        if (equals != std::string::npos) {
            return command[i].substr(equals + 1);
        }
        return i + 1 < to ? command[i + 1] : "";
    }
    return "";
}

// Takes the option and its value out of a launcher's own; how many words that were.
std::size_t take_out(std::vector<std::string>& command, std::size_t from, std::size_t to,
                     std::string_view name) {
    for (std::size_t i = from; i < to && i < command.size(); ++i) {
        const bool joined = command[i].starts_with(std::string{name} + "=");
        if (joined || command[i] == name) {
            const std::size_t words = joined || i + 1 == to ? 1 : 2;
            const auto place = command.begin() + static_cast<std::ptrdiff_t>(i);
            command.erase(place, place + static_cast<std::ptrdiff_t>(words));
            return words;
        }
    }
    return 0;
}

std::int64_t count_in(const std::string& text) {
    const auto number = to_int(text);
    return number && *number > 0 && *number <= 1'000'000 ? *number : 0;
}

// What the agent replaces on each node.
bool is_filled_in(const std::string& value) {
    return value.find('{') != std::string::npos;
}

Error not_a_launcher(const std::string& program, const std::string& instead) {
    return Error{Errc::invalid,
                 program + " starts processes itself, and Lockstep does: " + instead};
}

void guess_torchrun(Guess& out, std::size_t from, const RunOptions& options) {
    std::size_t script = script_of(out.command, from);
    out.framework = "pytorch";
    out.launch = "node";
    out.ranks_per_node = count_in(option_of(out.command, from, script, {"--nproc-per-node"}));
    if (options.gpus_per_node == 0 &&
        option_of(out.command, from, script, {"--nproc-per-node"}) == "gpu") {
        out.warnings.emplace_back(
            "torchrun is to start a rank for each GPU, and the job asks for none: say how many "
            "with -G");
    }
    const std::string range = option_of(out.command, from, script, {"--nnodes"});
    const auto colon = range.find(':');
    out.nodes = count_in(range.substr(colon == std::string::npos ? 0 : colon + 1));
    if (colon != std::string::npos) {
        out.min_nodes = count_in(range.substr(0, colon));
        // What Lockstep tells it (PET_NNODES) is how many there are each time.
        script -= take_out(out.command, from, script, "--nnodes");
    }
    const bool alone =
        std::find(out.command.begin(), out.command.begin() + static_cast<std::ptrdiff_t>(script),
                  "--standalone") != out.command.begin() + static_cast<std::ptrdiff_t>(script);
    if (std::max(options.nodes, out.nodes) > 1 && alone) {
        out.warnings.emplace_back(
            "torchrun --standalone makes every node a separate job: leave it out");
    }
    for (const std::string_view own :
         {"--rdzv-endpoint", "--master-addr", "--node-rank", "--rdzv-backend"}) {
        const std::string value = option_of(out.command, from, script, {own});
        if (value.empty() || is_filled_in(value)) {
            continue;
        }
        const bool place = own == "--rdzv-endpoint" || own == "--master-addr";
        out.warnings.push_back("torchrun's " + std::string{own} + " " + value +
                               " overrides the values Lockstep passes" +
                               (place ? ", and must be on a node of the job" : "") +
                               "; it is not needed");
    }
}

// accelerate launch reads no variables: its options are given, where the user has not.
void guess_accelerate(Guess& out, std::size_t from, std::int64_t nodes) {
    const std::size_t script = script_of(out.command, from);
    out.framework = "accelerate";
    out.launch = "node";
    out.nodes = count_in(option_of(out.command, from, script, {"--num-machines"}));
    nodes = std::max<std::int64_t>({nodes > 0 ? nodes : out.nodes, 1});
    // Of all machines together.
    const auto processes = count_in(option_of(out.command, from, script, {"--num-processes"}));
    out.ranks_per_node = processes % nodes == 0 ? processes / nodes : 0;
    for (const std::string_view own : {"--machine-rank", "--main-process-ip"}) {
        const std::string value = option_of(out.command, from, script, {own});
        if (nodes > 1 && !value.empty() && !is_filled_in(value)) {
            out.warnings.push_back("accelerate's " + std::string{own} + " " + value +
                                   " is the same on every node; it is not needed, Lockstep puts "
                                   "in each node's own");
        }
    }
    const std::array<std::pair<std::string_view, std::string>, 5> options{{
        {"--num-machines", "{num_nodes}"},
        {"--num-processes", "{world_size}"},
        {"--machine-rank", "{node_rank}"},
        {"--main-process-ip", "{master_addr}"},
        {"--main-process-port", "{master_port}"},
    }};
    std::vector<std::string> more;
    for (const auto& [name, value] : options) {
        if (!option_of(out.command, from, script, {name}).empty()) {
            continue;
        }
        std::string option{name};
        std::replace(option.begin() + 2, option.end(), '-', '_');
        more.push_back(option);
        more.push_back(value);
    }
    out.command.insert(out.command.begin() + static_cast<std::ptrdiff_t>(from), more.begin(),
                       more.end());
}

// Its values come from Lockstep's variables before its own options.
void guess_paddle(Guess& out, std::size_t from, const RunOptions& options) {
    const std::size_t script = script_of(out.command, from);
    const auto given = [&](std::initializer_list<std::string_view> names) {
        return option_of(out.command, from, script, names);
    };
    out.framework = "paddle";
    out.launch = "node";
    out.ranks_per_node = count_in(given({"--nproc-per-node"}));
    const std::string devices = given({"--gpus", "--devices", "--xpus", "--npus"});
    if (out.ranks_per_node == 0 && !devices.empty()) {
        out.ranks_per_node = static_cast<std::int64_t>(split(devices, ',').size());
    }
    const std::string gpus = given({"--gpus"});
    if (!gpus.empty() && options.gpus_per_node == 0) {
        out.warnings.push_back("paddle.distributed.launch is to use GPUs " + gpus +
                               ", and the job asks for none: say how many with -G");
    }
    const std::string range = given({"--nnodes"});  // MIN:MAX is possible
    const auto colon = range.find(':');
    out.nodes = count_in(range.substr(colon == std::string::npos ? 0 : colon + 1));
    for (const std::string_view own : {"--master", "--rank", "--log-dir", "--nnodes"}) {
        const std::string value = given({own});
        const bool taken = own == "--nnodes" && colon == std::string::npos &&
                           (options.nodes == 0 || options.nodes == out.nodes);
        if (!value.empty() && !taken) {
            out.warnings.push_back("paddle.distributed.launch's " + std::string{own} + " " + value +
                                   " has no effect: it takes Lockstep's own value before it");
        }
    }
}

struct OneNode {
    std::string_view name;
    std::string_view framework;  // of the job that its script is without it
    bool told_port = false;      // by --master_port; another is fixed, and every job's
};

// Several nodes they reach by ssh, and start there what Lockstep knows nothing of; or they are told
// which node they are on.
Status guess_one_node(Guess& out, std::size_t from, const RunOptions& options,
                      const OneNode& launcher, std::initializer_list<std::string_view> ranks) {
    const std::size_t script = script_of(out.command, from);
    const auto given = [&](std::initializer_list<std::string_view> names) {
        return option_of(out.command, from, script, names);
    };
    out.framework = "pytorch";
    out.launch = "node";
    out.ranks_per_node = count_in(given(ranks));
    const std::int64_t here = std::max<std::int64_t>(
        {out.ranks_per_node, options.ranks_per_node, options.gpus_per_node, 1});
    const bool placed = is_filled_in(given({"--node-rank"}));
    if (!placed && (options.nodes > 1 || count_in(given({"--num-nodes"})) > 1 ||
                    count_in(given({"--world-size"})) > here ||
                    !given({"--hostfile", "--host", "-host", "-H"}).empty())) {
        return fail(not_a_launcher(std::string{launcher.name},
                                   "lockstep run -N NODES -n RANKS_PER_NODE --framework " +
                                       std::string{launcher.framework} + " -- python SCRIPT …"));
    }
    if (launcher.told_port && given({"--master-port"}).empty()) {
        const std::array<std::string, 2> port{"--master_port", "{master_port}"};
        out.command.insert(out.command.begin() + static_cast<std::ptrdiff_t>(from), port.begin(),
                           port.end());
    }
    return {};
}

// What starts ranks on other nodes itself, with what to write instead.
Status check_replaced(const std::string& name, const std::string& verb) {
    constexpr std::array<std::string_view, 6> kOfMpi{"srun",          "mpirun",  "mpiexec",
                                                     "mpiexec.hydra", "orterun", "prterun"};
    if (std::find(kOfMpi.begin(), kOfMpi.end(), name) != kOfMpi.end()) {
        return fail(not_a_launcher(name,
                                   "lockstep run -N NODES -n RANKS_PER_NODE -- PROGRAM, with "
                                   "--framework mpi before the -- if its ranks meet by MPI"));
    }
    if (name == "horovodrun") {
        return fail(not_a_launcher(name,
                                   "lockstep run -N NODES -n RANKS_PER_NODE --framework horovod "
                                   "-- python SCRIPT …"));
    }
    if (name == "sbatch" || name == "salloc") {
        return fail(Errc::invalid, name +
                                       " is what Lockstep calls: give the command alone, and "
                                       "-N, -n, -p, -t as it takes them");
    }
    if (name == "ray" && (verb == "job" || verb == "start")) {
        return fail(Errc::invalid,
                    "ray " + verb +
                        " needs a Ray cluster of your own, and Lockstep makes one of the job's "
                        "nodes: lockstep run -N NODES --framework ray -- python SCRIPT …");
    }
    return {};
}

// An option that a variable was to fill in which the caller's shell does not have.
void warn_of_empty(Guess& out, const std::string& name, std::size_t from) {
    const std::size_t script = script_of(out.command, from);
    for (std::size_t i = from; i < script; ++i) {
        if (out.command[i].starts_with("--") && out.command[i].ends_with("=")) {
            out.warnings.push_back(name + "'s " + out.command[i] +
                                   " has no value: your shell fills in variables here, where the "
                                   "job's (LOCKSTEP_JOB_ID, MASTER_ADDR) are not set");
        }
    }
}

Result<bool> guess_named(Guess& out, const std::string& name, std::size_t from,
                         const RunOptions& options) {
    const std::string verb = from < out.command.size() ? out.command[from] : "";
    LOCKSTEP_TRY(check_replaced(name, verb));
    if (name == "torchrun" || name == "torch.distributed.run" ||
        name == "torch.distributed.launch") {
        guess_torchrun(out, from, options);
    } else if (name == "accelerate launch" || name.starts_with("accelerate.commands")) {
        guess_accelerate(out, from, options.nodes);
    } else if (name == "paddle.distributed.launch") {
        guess_paddle(out, from, options);
    } else if (name == "deepspeed") {
        LOCKSTEP_TRY(
            guess_one_node(out, from, options, {"deepspeed", "deepspeed", true}, {"--num-gpus"}));
    } else if (name == "colossalai run") {
        LOCKSTEP_TRY(guess_one_node(out, from, options, {"colossalai run", "pytorch", true},
                                    {"--nproc-per-node"}));
    } else if (name == "composer" && script_of(out.command, from) < out.command.size()) {
        // The program of this name that comes with PHP starts no Python.
        LOCKSTEP_TRY(
            guess_one_node(out, from, options, {"composer", "pytorch", false}, {"-n", "--nproc"}));
    } else {
        return false;
    }
    return true;
}

}  // namespace

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string job_name(const std::string& program) {
    std::string name = base_name(program);
    if (const std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0) {
        name.resize(dot);
    }
    std::string out;
    for (const char c : name) {
        const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
        if (word || ((c == '.' || c == '_' || c == '-') && !out.empty())) {
            out += c;
        } else if (!out.empty()) {
            out += '-';
        }
    }
    out.resize(std::min<std::size_t>(out.size(), 64));
    return out.empty() ? "job" : out;
}

// The script that a launcher starts: its first argument that is a file of Python, else npos.
std::size_t script_of(const std::vector<std::string>& command, std::size_t from) {
    for (std::size_t i = from; i < command.size(); ++i) {
        if (command[i].ends_with(".py") && !command[i].starts_with("-")) {
            return i;
        }
    }
    return command.size();
}

Result<bool> guess_launcher(Guess& out, const std::string& name, std::size_t from,
                            const RunOptions& options) {
    auto known = guess_named(out, name, from, options);
    if (!known || !*known) {
        return known;
    }
    out.why = name + " starts the ranks of a node";
    warn_of_empty(out, name, from);
    if (const std::size_t script = script_of(out.command, from); script < out.command.size()) {
        out.name = job_name(out.command[script]);
    }
    return true;
}

}  // namespace lockstep::cli
