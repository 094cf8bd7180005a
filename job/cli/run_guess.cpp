#include "job/cli/run_guess.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/framework.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <set>

namespace lockstep::cli {
namespace {

constexpr std::size_t kScriptPart = 1U << 20U;

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

bool is_python(const std::string& program) {
    const std::string name = base_name(program);
    const auto digits =
        name.find_first_not_of("0123456789.", std::min<std::size_t>(6, name.size()));
    return name.starts_with("python") && digits == std::string::npos;
}

// What stands behind a Python: the script or -m's module.
struct Program {
    std::string script;    // "" = none
    std::string module;    // "" = none
    std::size_t next = 0;  // the first of its own arguments
};

Program program_behind(const std::vector<std::string>& command, std::size_t from) {
    Program out;
    for (std::size_t i = from; i < command.size(); ++i) {
        const std::string& word = command[i];
        if (word == "-m" && i + 1 < command.size()) {
            out.module = command[i + 1];
            out.next = i + 2;
            return out;
        }
        if (word == "-c") {
            out.next = command.size();
            return out;
        }
        if (word == "-W" || word == "-X") {
            ++i;
        } else if (word.empty() || word.front() != '-') {
            out.script = word;
            out.next = i + 1;
            return out;
        }
    }
    out.next = command.size();
    return out;
}

// The packages that a script imports, by the lines that do so.
std::set<std::string> imports_of(const std::string& path) {
    std::set<std::string> out;
    const auto text = read_plain_file(path, kScriptPart);
    if (!text) {
        return out;
    }
    for (const std::string& line : split(*text, '\n')) {
        const std::string_view code = trim(line);
        for (const std::string_view word : {"import ", "from "}) {
            if (!code.starts_with(word)) {
                continue;
            }
            std::string_view names = code.substr(word.size());
            names = names.substr(0, names.find(" import "));
            for (const std::string& name : split(names, ',')) {
                const std::string_view whole = trim(name);
                out.emplace(whole.substr(0, whole.find_first_of(". ")));
                if (whole.starts_with("torch.distributed")) {
                    out.emplace("torch.distributed");
                }
            }
        }
    }
    return out;
}

// By what decides first: Lightning's script imports torch, too.
std::string framework_of(const std::set<std::string>& imports, std::string& package) {
    std::int32_t place = std::numeric_limits<std::int32_t>::max();
    std::string out;
    for (std::size_t i = 0; i < kFrameworkCount; ++i) {
        const auto framework = static_cast<Framework>(i);
        for (const FrameworkImport& import : traits_of(framework).imports) {
            const std::string module{import.module};
            if (import.place < place && imports.contains(module)) {
                place = import.place;
                package = module;
                out = to_string(framework);
            }
        }
    }
    if (out.empty() && imports.contains("mpi4py")) {
        package = "mpi4py";  // srun starts its ranks, or mpirun
    }
    return out;
}

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

// The script that a launcher starts: its first argument that is a file of Python, else npos.
std::size_t script_of(const std::vector<std::string>& command, std::size_t from) {
    for (std::size_t i = from; i < command.size(); ++i) {
        if (command[i].ends_with(".py") && !command[i].starts_with("-")) {
            return i;
        }
    }
    return command.size();
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

std::int64_t number_of(const std::string& text) {
    const auto number = to_int(text);
    return number && *number > 0 && *number <= 1'000'000 ? *number : 0;
}

void guess_torchrun(Guess& out, std::size_t from, std::int64_t nodes) {
    std::size_t script = script_of(out.command, from);
    out.framework = "pytorch";
    out.launch = "node";
    out.ranks_per_node = number_of(option_of(out.command, from, script, {"--nproc-per-node"}));
    const std::string range = option_of(out.command, from, script, {"--nnodes"});
    const auto colon = range.find(':');
    out.nodes = number_of(range.substr(colon == std::string::npos ? 0 : colon + 1));
    if (colon != std::string::npos) {
        out.min_nodes = number_of(range.substr(0, colon));
        // What Lockstep tells it (PET_NNODES) is how many there are each time.
        script -= take_out(out.command, from, script, "--nnodes");
    }
    const bool alone =
        std::find(out.command.begin(), out.command.begin() + static_cast<std::ptrdiff_t>(script),
                  "--standalone") != out.command.begin() + static_cast<std::ptrdiff_t>(script);
    if (std::max(nodes, out.nodes) > 1 && alone) {
        out.warnings.emplace_back(
            "torchrun --standalone makes every node a separate job: leave it out");
    }
    for (const std::string_view own :
         {"--rdzv-endpoint", "--master-addr", "--node-rank", "--rdzv-backend"}) {
        if (!option_of(out.command, from, script, {own}).empty()) {
            out.warnings.push_back("torchrun's " + std::string{own} +
                                   " overrides the values Lockstep passes; it is not needed");
        }
    }
    if (script < out.command.size()) {
        out.name = job_name(out.command[script]);
    }
}

// accelerate launch reads no variables: its options are given, where the user has not.
void guess_accelerate(Guess& out, std::size_t from) {
    const std::size_t script = script_of(out.command, from);
    out.framework = "accelerate";
    out.launch = "node";
    out.nodes = number_of(option_of(out.command, from, script, {"--num-machines"}));
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
    const std::size_t behind = script_of(out.command, from);
    if (behind < out.command.size()) {
        out.name = job_name(out.command[behind]);
    }
}

void guess_paddle(Guess& out, std::size_t from) {
    out.framework = "paddle";
    out.launch = "node";
    const std::size_t script = script_of(out.command, from);
    out.ranks_per_node = number_of(option_of(out.command, from, script, {"--nproc-per-node"}));
    if (script < out.command.size()) {
        out.name = job_name(out.command[script]);
    }
}

Error not_a_launcher(const std::string& program, const std::string& instead) {
    return Error{Errc::invalid,
                 program + " starts processes itself, and Lockstep does: " + instead};
}

}  // namespace

Result<Guess> guess_run(const std::vector<std::string>& command, std::int64_t nodes,
                        const Caller& caller) {
    Guess out;
    out.command = command;
    const std::string program = base_name(command.front());
    out.name = job_name(command.front());
    if (program == "torchrun") {
        out.why = "torchrun starts the ranks of a node";
        guess_torchrun(out, 1, nodes);
        return out;
    }
    if (program == "accelerate" && command.size() > 1 && command[1] == "launch") {
        out.why = "accelerate launch starts the ranks of a node";
        guess_accelerate(out, 2);
        return out;
    }
    if (program == "srun" || program == "mpirun" || program == "mpiexec") {
        return fail(not_a_launcher(
            program, "lockstep run -N NODES -n RANKS_PER_NODE --framework mpi -- PROGRAM"));
    }
    if (program == "sbatch" || program == "salloc") {
        return fail(Errc::invalid, program +
                                       " is what Lockstep calls: give the command alone, and "
                                       "-N, -n, -p, -t as it takes them");
    }
    if (program == "deepspeed") {
        if (nodes > 1) {
            return fail(not_a_launcher(program,
                                       "lockstep run -N NODES -n RANKS_PER_NODE "
                                       "--framework deepspeed -- python SCRIPT …"));
        }
        out.framework = "pytorch";
        out.launch = "node";
        out.why = "deepspeed starts the ranks of a node";
        return out;
    }
    if (!is_python(command.front())) {
        out.why = "no framework is known of " + program;
        return out;
    }
    const Program behind = program_behind(command, 1);
    if (!behind.module.empty()) {
        out.name = job_name(behind.module.substr(behind.module.rfind('.') + 1));
        if (behind.module == "torch.distributed.run" ||
            behind.module == "torch.distributed.launch") {
            out.why = behind.module + " starts the ranks of a node";
            guess_torchrun(out, behind.next, nodes);
            return out;
        }
        if (behind.module == "paddle.distributed.launch") {
            out.why = behind.module + " starts the ranks of a node";
            guess_paddle(out, behind.next);
            return out;
        }
        if (behind.module.starts_with("accelerate.commands")) {
            out.why = behind.module + " starts the ranks of a node";
            guess_accelerate(out, behind.next);
            return out;
        }
        if (behind.module == "lockstep.ray") {
            // Its head listens at the master port, which torch's variables would have the agent
            // serve.
            out.why = "Ray makes a cluster of its own";
            out.ranks_per_node = 1;
            const std::size_t script = script_of(out.command, behind.next);
            out.name = script < out.command.size() ? job_name(out.command[script]) : "ray";
            return out;
        }
    }
    out.framework = "pytorch";
    out.why = "a Python program, which gets torchrun's variables";
    if (!behind.script.empty()) {
        out.name = job_name(behind.script);
        const auto path = resolve_path(behind.script, caller, caller.directory);
        std::string package;
        const std::string found = path ? framework_of(imports_of(*path), package) : std::string{};
        if (!found.empty()) {
            out.framework = found;
            out.why = behind.script + " imports " + package;
            out.ranks_per_node = found == "ray" ? 1 : out.ranks_per_node;
        }
    }
    return out;
}

}  // namespace lockstep::cli
