// `lockstep run`: what the specification says, before anything is recorded or sent.
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/placement.hpp"
#include "job/cli/run.hpp"
#include "job/cli/run_guess.hpp"
#include "job/cli/run_sweep.hpp"
#include "job/cli/suggest.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <algorithm>
#include <cctype>

namespace lockstep::cli {
namespace {

std::string shown_command(const std::vector<std::string>& command) {
    std::string out;
    for (const std::string& word : command) {
        out += out.empty() ? "" : " ";
        const bool plain =
            !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
                return c > ' ' && c < 0x7F &&
                       std::string_view("'\"\\$`*?;&|<>()").find(static_cast<char>(c)) ==
                           std::string_view::npos;
            });
        out += plain ? word : "'" + one_line(word) + "'";
    }
    return out;
}

// A job's name made of one with blanks and the like.
std::string fitting_name(const std::string& name) {
    std::string out;
    for (const char c : name) {
        const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
        out += word || c == '.' || c == '_' || c == '-' ? c : '-';
    }
    out.erase(0, out.find_first_not_of(".-_"));
    return out.substr(0, 64);
}

// The name that a sweep's parameters stand in, as mlp-{lr}.
std::string without_placeholders(std::string name, const std::vector<std::string>& sweep) {
    for (const std::string& one : sweep) {
        const std::string inside = one.substr(0, one.find('='));
        const std::string placeholder = "{" + inside + "}";
        for (auto at = name.find(placeholder); at != std::string::npos;
             at = name.find(placeholder)) {
            name.replace(at, placeholder.size(), inside);
        }
    }
    return name;
}

// The program that the command starts, as the caller's shell would find it; with a setup it may
// come from there, and is looked for on the node alone.
Result<std::string> check_program(const RunOptions& options, const Caller& caller) {
    const std::string& name = options.command.front();
    if (auto found = find_on_path(name, caller)) {
        return std::move(*found);
    }
    if (!options.setup.empty()) {
        return std::string{};
    }
    std::string hint;
    std::error_code ec;
    const auto file = resolve_path(name, caller, caller.directory);
    if (file && std::filesystem::is_regular_file(*file, ec)) {
        hint = name.ends_with(".py") ? "; it is a file here: lockstep run -- python3 " + name + " …"
                                     : "; it is a file here, though no program: chmod +x " + name +
                                           " && lockstep run -- " +
                                           (name.find('/') == std::string::npos ? "./" : "") + name;
    } else if (name == "python" && find_on_path("python3", caller)) {
        hint = "; there is python3";
    } else if (name.find(' ') != std::string::npos) {
        hint = "; give the command as separate arguments, without quotes around all of it";
    } else if (name.starts_with("-")) {
        hint = "; options of lockstep run go before the --";
    } else if (name.find('/') != std::string::npos && !options.directory.empty() &&
               !std::filesystem::is_directory(caller.directory, ec)) {
        hint = "; --chdir " + one_line(options.directory) + " is no folder here";
    }
    return fail(Errc::invalid, "command not found: " + one_line(name) + hint);
}

Status add_variables(Json& spec, const RunOptions& options, const Caller& caller) {
    if (!options.bare) {
        add_own_variables(spec, caller);
    }
    for (const std::string& one : options.environment) {
        const std::size_t equals = one.find('=');
        const std::string name = one.substr(0, equals);
        if (!is_variable_name(name)) {
            return fail(Errc::invalid, "--env " + one_line(one) + ": must be NAME=VALUE, or NAME");
        }
        if (equals == std::string::npos && !caller.environment.contains(name)) {
            return fail(Errc::invalid, "--env " + name + ": it is not set here");
        }
        spec["environment"][name] = dollars_doubled(
            equals == std::string::npos ? caller.variable(name) : one.substr(equals + 1));
    }
    return {};
}

Status add_labels(Json& spec, const RunOptions& options) {
    for (const std::string& one : options.labels) {
        const std::size_t equals = one.find('=');
        const std::string name = one.substr(0, equals);
        if (equals == std::string::npos || name.empty()) {
            return fail(Errc::invalid,
                        "--label " + one_line(one) + ": must be NAME=VALUE, as in team=vision");
        }
        if (spec["labels"].contains(name)) {
            return fail(Errc::invalid,
                        "--label " + one_line(name) + ": is given twice; a label has one value");
        }
        spec["labels"][name] = one.substr(equals + 1);
    }
    return {};
}

Status add_resources(Json& spec, const RunOptions& options, std::int64_t nodes,
                     std::int64_t min_nodes, std::int64_t ranks) {
    Json resources = Json::object();
    resources["nodes"] = nodes;
    resources["ranks_per_node"] = ranks;
    if (min_nodes > 0) {
        resources["min_nodes"] = min_nodes;
    }
    if (options.gpus_per_node > 0) {
        resources["gpus_per_node"] = options.gpus_per_node;
    }
    if (!options.gpu_type.empty()) {
        resources["gpu_type"] = options.gpu_type;
    }
    if (options.ranks_per_gpu > 0) {
        resources["ranks_per_gpu"] = options.ranks_per_gpu;
    }
    if (options.cpus_per_rank > 0) {
        resources["cpus_per_rank"] = options.cpus_per_rank;
    }
    if (!options.memory.empty()) {
        const auto memory = memory_mb(options.memory);
        if (!memory) {
            return fail(memory.error().code, "--mem " + memory.error().message);
        }
        resources["memory_mb_per_node"] = *memory;
    }
    if (!options.time_limit.empty()) {
        resources["time_limit"] = options.time_limit;
    }
    spec["resources"] = std::move(resources);
    Json slurm = slurm_of(options.partition, options.placement);
    if (options.exclusive) {
        slurm["exclusive"] = true;
    }
    LOCKSTEP_TRY(add_directives(slurm, options.sbatch));
    if (!slurm.is_null()) {
        spec["slurm"] = std::move(slurm);
    }
    return {};
}

std::string count_of(std::int64_t number, const char* what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

void tell(RunPlan& plan, const RunOptions& options, const Caller& caller, const Guess& guess,
          const std::string& program, std::int64_t nodes, std::int64_t ranks) {
    auto& out = plan.decided;
    const bool node = plan.spec.value("launch", "rank") == "node";
    out.emplace_back("runs", shown_command(options.command) + ", " + count_of(nodes, "node") +
                                 " × " + count_of(ranks, "rank") +
                                 (node ? ", which it starts itself on each node" : ""));
    if (const std::int64_t least = plan.spec["resources"].value("min_nodes", std::int64_t{0});
        least > 0 && least < nodes) {
        out.emplace_back("elastic", "goes on with " + std::to_string(least) + " of " +
                                        count_of(nodes, "node") +
                                        " where others are lost; its ranks start again from "
                                        "their own checkpoint");
    }
    const bool chosen = !options.framework.empty();
    out.emplace_back("framework",
                     plan.spec["framework"].get<std::string>() + (chosen ? "" : ": " + guess.why));
    if (!program.empty() && program != options.command.front()) {
        const std::string programs = environment_programs(caller);
        const bool inside = !programs.empty() && program.starts_with(programs + "/");
        out.emplace_back("program", program);
        if (!programs.empty() && !inside &&
            program.substr(program.rfind('/') + 1).starts_with("python")) {
            plan.warnings.push_back(program +
                                    " is not the Python of the environment that is "
                                    "active, " +
                                    programs);
        }
    }
    out.emplace_back("directory", plan.spec["working_directory"].get<std::string>());
}

}  // namespace

Result<RunPlan> plan_run(const RunOptions& options, const Caller& caller) {
    if (options.command.empty() || options.command.front().empty()) {
        return fail(Errc::invalid,
                    "no command: lockstep run [OPTION…] -- python train.py; see --help");
    }
    auto guess = guess_run(options, caller);
    LOCKSTEP_TRY(guess);
    const auto program = check_program(options, caller);
    LOCKSTEP_TRY(program);
    RunPlan plan;
    plan.warnings = guess->warnings;
    const std::int64_t nodes =
        options.nodes > 0 ? options.nodes : std::max<std::int64_t>(guess->nodes, 1);
    std::int64_t min_nodes = options.min_nodes;
    if (min_nodes == 0 && guess->min_nodes < nodes) {
        min_nodes = guess->min_nodes;
    }
    std::int64_t ranks =
        options.ranks_per_node > 0 ? options.ranks_per_node : guess->ranks_per_node;
    if (ranks == 0) {  // one rank a GPU is what everybody means
        ranks = std::max<std::int64_t>(
            options.gpus_per_node * std::max<std::int64_t>(options.ranks_per_gpu, 1), 1);
    }
    Json& spec = plan.spec;
    spec = Json::object();
    const std::string name = options.name.empty() ? guess->name : options.name;
    const std::string plain = without_placeholders(name, options.sweep);
    if (fitting_name(plain) != plain) {
        return fail(Errc::invalid, "--name " + one_line(name) +
                                       ": letters, digits, and . _ - within; for instance " +
                                       fitting_name(name));
    }
    spec["name"] = name;
    spec["framework"] = options.framework.empty() ? guess->framework : options.framework;
    spec["command"] = guess->command;
    const std::string launch = !options.launch.empty()      ? options.launch
                               : options.framework == "mpi" ? "task"
                                                            : guess->launch;
    if (launch != "rank") {
        spec["launch"] = launch;
    }
    LOCKSTEP_TRY(add_resources(spec, options, nodes, min_nodes, ranks));
    spec["working_directory"] = caller.directory;
    LOCKSTEP_TRY(add_variables(spec, options, caller));
    for (const auto& [variable, value] : guess->environment) {
        if (!spec.contains("environment") || !spec["environment"].contains(variable)) {
            spec["environment"][variable] = value;
        }
    }
    if (!options.bare) {
        spec["inherit_environment"] = true;
    }
    if (!options.setup.empty()) {
        spec["setup"] = options.setup;
    }
    const std::int64_t restarts = options.max_restarts.value_or(0);
    if (restarts > 0 || min_nodes > 0) {
        spec["recovery"] = Json::object();
    }
    if (restarts > 0 || (options.max_restarts && min_nodes > 0)) {
        spec["recovery"]["max_restarts"] = restarts;
    }
    if (!options.secrets.empty()) {
        spec["secrets"] = options.secrets;
    }
    if (!options.notify.empty()) {
        spec["notify"] = options.notify;
    }
    LOCKSTEP_TRY(add_labels(spec, options));
    if (!options.sweep.empty()) {
        auto sweep = sweep_of_texts(options.sweep, spec);
        LOCKSTEP_TRY(sweep);
        spec["sweep"] = std::move(*sweep);
        if (options.max_parallel > 0) {
            spec["sweep"]["max_parallel"] = options.max_parallel;
        }
    }
    tell(plan, options, caller, *guess, *program, nodes, ranks);
    return plan;
}

}  // namespace lockstep::cli
