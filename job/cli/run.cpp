#include "job/cli/run.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/follow.hpp"
#include "job/cli/run_guess.hpp"
#include "job/cli/run_sweep.hpp"
#include "job/cli/snapshot.hpp"
#include "job/cli/spec_file.hpp"
#include "job/cli/submit.hpp"
#include "job/cli/suggest.hpp"
#include "job/model/spec_environment.hpp"

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
                                           " && lockstep run -- ./" + name;
    } else if (name == "python" && find_on_path("python3", caller)) {
        hint = "; there is python3";
    } else if (name.find(' ') != std::string::npos) {
        hint = "; the command is given as words, without quotes around all of it";
    } else if (name.starts_with("-")) {
        hint = "; options of lockstep run go before the --";
    }
    return fail(Errc::invalid, "command not found: " + one_line(name) + hint);
}

Status add_variables(Json& spec, const RunOptions& options, const Caller& caller) {
    // Of Lockstep's own variables the one that is for the ranks.
    const std::string hooks{kPythonHooks};
    if (!options.bare && caller.environment.contains(hooks)) {
        spec["environment"][hooks] = dollars_doubled(caller.variable(hooks));
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

void add_resources(Json& spec, const RunOptions& options, std::int64_t nodes, std::int64_t ranks) {
    Json resources = Json::object();
    resources["nodes"] = nodes;
    resources["ranks_per_node"] = ranks;
    if (options.gpus_per_node > 0) {
        resources["gpus_per_node"] = options.gpus_per_node;
    }
    if (options.ranks_per_gpu > 0) {
        resources["ranks_per_gpu"] = options.ranks_per_gpu;
    }
    if (options.cpus_per_rank > 0) {
        resources["cpus_per_rank"] = options.cpus_per_rank;
    }
    if (!options.time_limit.empty()) {
        resources["time_limit"] = options.time_limit;
    }
    spec["resources"] = std::move(resources);
    Json slurm = Json::object();
    for (const auto& [key, value] :
         {std::pair<const char*, const std::string&>{"partition", options.partition},
          {"account", options.account},
          {"qos", options.qos}}) {
        if (!value.empty()) {
            slurm[key] = value;
        }
    }
    if (!slurm.empty()) {
        spec["slurm"] = std::move(slurm);
    }
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
    auto guess = guess_run(options.command, options.nodes, caller);
    if (!guess) {
        return fail(guess.error());
    }
    const auto program = check_program(options, caller);
    if (!program) {
        return fail(program.error());
    }
    RunPlan plan;
    plan.warnings = guess->warnings;
    const std::int64_t nodes =
        options.nodes > 0 ? options.nodes : std::max<std::int64_t>(guess->nodes, 1);
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
    add_resources(spec, options, nodes, ranks);
    spec["working_directory"] = caller.directory;
    if (Status added = add_variables(spec, options, caller); !added) {
        return fail(added.error());
    }
    if (!options.bare) {
        spec["inherit_environment"] = true;
    }
    if (!options.setup.empty()) {
        spec["setup"] = options.setup;
    }
    if (options.max_restarts > 0) {
        spec["recovery"] = Json::object();
        spec["recovery"]["max_restarts"] = options.max_restarts;
    }
    if (!options.secrets.empty()) {
        spec["secrets"] = options.secrets;
    }
    if (!options.notify.empty()) {
        spec["notify"] = options.notify;
    }
    if (!options.sweep.empty()) {
        auto sweep = sweep_of_texts(options.sweep, spec);
        if (!sweep) {
            return fail(sweep.error());
        }
        spec["sweep"] = std::move(*sweep);
        if (options.max_parallel > 0) {
            spec["sweep"]["max_parallel"] = options.max_parallel;
        }
    }
    tell(plan, options, caller, *guess, *program, nodes, ranks);
    return plan;
}

namespace {

// What the job printed, when nothing of it could be plotted: a program without a loss has a result
// all the same.
void show_output(Context& context, const std::string& id) {
    const auto job = context.client.get_json("/v1/jobs/" + id);
    if (!job || integer_at(*job, "step")) {
        return;
    }
    const auto log = context.client.get("/v1/jobs/" + id + "/logs?rank=0&tail=20");
    if (log && !log->body.empty()) {
        context.out << harmless(log->body) << std::flush;
    }
}

void show_logs(Context& context, const std::string& id) {
    const auto job = context.client.get_json("/v1/jobs/" + id);
    const Json& attempts = job ? items_at(*job, "attempts") : items_at(Json(), "");
    if (attempts.empty()) {
        return;
    }
    const std::string folder = text_at(attempts.back(), "directory");
    if (!folder.empty()) {
        context.err << "logs  " << folder << "/rank-*.log   (lockstep logs " << id << ")\n";
    }
}

std::string environment_text(const Recorded& recorded) {
    std::string out = count_of(static_cast<std::int64_t>(recorded.variables.size()), "variable") +
                      " of this shell";
    if (recorded.stayed > 0) {
        out +=
            ", " + std::to_string(recorded.stayed) + " stay here (session, terminal, Slurm's own)";
    }
    return out;
}

}  // namespace

Exit follow_logs(Context& context, const std::string& id) {
    Options own = context.options;
    own.log_follow = true;
    own.rank = "0";
    own.tail = 0;
    // Somebody waits for the first line: in the beginning it is asked for more often.
    static constexpr std::chrono::milliseconds kSoon{50};
    static constexpr std::chrono::seconds kBeginning{10};
    const auto begun = context.clock.steady();
    const auto sleep = [&context, begun](std::chrono::milliseconds time) {
        const bool soon = context.clock.steady() - begun < kBeginning;
        context.sleep(soon ? std::min(time, kSoon) : time);
    };
    Context logging{own,   context.terminal, context.client, context.clock,
                    sleep, context.out,      context.err,    context.watching};
    const Exit end = logs(logging, id);
    return end == Exit::ok ? follow_job(context, id, true) : end;
}

namespace {

Exit stay_with(Context& context, const std::string& id) {
    const RunOptions& options = context.options.run;
    const bool follow = context.options.follow || options.logs ||
                        (context.terminal.interactive && !context.options.wait && !options.detach);
    if (!follow && !context.options.wait) {
        if (context.terminal.interactive) {
            context.err << "follow it: lockstep follow " << id << "\nits output: lockstep logs "
                        << id << " -f\n";
        }
        return Exit::ok;
    }
    context.watching(id);
    Exit end = Exit::ok;
    if (options.logs) {
        end = follow_logs(context, id);
    } else if (!options.sweep.empty()) {
        return follow_sweep(context, id);
    } else {
        end = follow_job(context, id, context.options.wait);
        if (!context.options.wait) {
            show_output(context, id);
        }
    }
    show_logs(context, id);
    return end;
}

}  // namespace

Result<Caller> caller_of(const RunOptions& options) {
    Caller caller = Caller::here();
    if (!options.directory.empty()) {
        const auto chosen = resolve_path(options.directory, caller, caller.directory);
        if (!chosen) {
            return fail(Errc::invalid, "--chdir: " + chosen.error().message);
        }
        caller.directory = *chosen;
    }
    return caller;
}

Exit run_job(Context& context) {
    const RunOptions& options = context.options.run;
    const auto somebody = caller_of(options);
    if (!somebody) {
        return report(context, somebody.error());
    }
    const Caller& caller = *somebody;
    auto plan = plan_run(options, caller);
    if (!plan) {
        return report(context, plan.error());
    }
    if (options.snapshot) {
        const auto snapshot = take_snapshot(caller.directory, snapshots_folder(context.options));
        if (!snapshot) {
            return report(context, snapshot.error());
        }
        plan->spec["working_directory"] = snapshot->directory;
        plan->spec["labels"] = snapshot->labels;
        plan->decided.back() = {"directory", snapshot->directory + ", " + snapshot->summary};
        plan->warnings.insert(plan->warnings.end(), snapshot->warnings.begin(),
                              snapshot->warnings.end());
    }
    if (!options.output.empty()) {
        const std::string text = dump_json_pretty(plan->spec) + "\n";
        if (options.output == "-") {
            context.out << text;
        } else if (const Status kept = write_file_atomic(options.output, text); !kept) {
            return report(context, {Errc::invalid, kept.error().message});
        }
    }
    if (!options.bare) {
        Recorded recorded = record_environment(caller);
        plan->decided.emplace_back("environment", environment_text(recorded));
        for (const std::string& one : recorded.left_out) {
            plan->warnings.push_back("not carried to the job: " + one);
        }
        for (const std::string& name : options.secrets) {  // not in the clear beside it
            recorded.variables.erase(name);
        }
        plan->spec["recorded_environment"] = std::move(recorded.variables);
    }
    for (const auto& [name, value] : plan->decided) {
        context.err << paint(context.terminal, Style::dim, fit(context.terminal, name, 11, false))
                    << "  " << one_line(value) << "\n";
    }
    for (const std::string& warning : plan->warnings) {
        context.err << "warning: " << one_line(warning) << "\n";
    }
    if (options.dry_run) {
        return Exit::ok;
    }
    Document document;
    document.json = std::move(plan->spec);
    const auto id = send_job(context, document, "");
    return id ? stay_with(context, *id) : id.error();
}

}  // namespace lockstep::cli
