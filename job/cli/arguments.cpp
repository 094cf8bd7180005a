#include "job/cli/arguments.hpp"

#include "job/cli/checks.hpp"
#include "job/cli/glyph.hpp"
#include "job/cli/placement.hpp"
#include "job/cli/suggest.hpp"
#include "job/model/spec/framework_list.hpp"

#include <algorithm>

namespace lockstep::cli {
namespace {

constexpr const char* kRunExamples =
    "Everything behind -- is the command, as it works in this shell.\n"
    "\n"
    "Examples:\n"
    "  lockstep run -- python train.py\n"
    "      one rank, here or on the cluster\n"
    "  lockstep run -N 4 -- python train.py --lr 0.1\n"
    "      4 nodes, one rank each\n"
    "  lockstep run -N 2 -G 8 -p gpu -t 4:00:00 -- python train.py\n"
    "      2 nodes, 8 GPUs and 8 ranks on each\n"
    "  lockstep run -N 2 -n 4 -- torchrun train.py\n"
    "      torchrun starts the 4 of each node\n"
    "  lockstep run --setup \"module load cuda/12\" -G 1 -- python train.py\n"
    "  lockstep run --snapshot --detach -- python train.py\n"
    "      edit on while it waits and runs\n"
    "  lockstep run --sweep lr=0.1,0.01 --sweep seed=1..3 -- \\\n"
    "      python train.py {lr} {seed}\n"
    "      6 jobs; the best of them at the end\n"
    "  lockstep run -o job.json --dry-run -- python train.py\n"
    "      keep it as a specification\n"
    "\n"
    "What the ranks get: this directory; this shell's environment with its virtual\n"
    "or conda environment (not the terminal's, the session's or Slurm's variables);\n"
    "and what torch.distributed's env:// wants: RANK, WORLD_SIZE, LOCAL_RANK,\n"
    "MASTER_ADDR, MASTER_PORT. init_process_group() needs no argument but the\n"
    "backend.\n"
    "\n"
    "Instead of torchrun --nnodes 4 --nproc-per-node 8 train.py:\n"
    "  lockstep run -N 4 -n 8 -- python train.py\n"
    "Instead of sbatch -N4 -p gpu -t 1:00:00 with srun in it:\n"
    "  lockstep run -N 4 -p gpu -t 1:00:00 -- …\n"
    "\n"
    "On a terminal it follows the job; Ctrl-C leaves the job running, a second\n"
    "Ctrl-C within 2 seconds cancels it. In a pipe it prints the id and ends: --wait\n"
    "or --follow stay. Exit status: 0 the job succeeded (or is on its way), 1 failed,\n"
    "7 cancelled, 2 wrong use, 4 no lockstepd, 130 interrupted. Where no lockstepd\n"
    "runs, one is started for you and says so; on a machine where Slurm is set up it\n"
    "uses Slurm. LOCKSTEP_SCHEDULER=local keeps it here.";

template <class Number>
CLI::Option* add_number(CLI::App* run, const std::string& names, Number& target, std::int64_t least,
                        std::int64_t most, const std::string& help) {
    return run->add_option(names, target, help)->check(whole_number(least, most))->type_name("N");
}

CLI::Option* add_text(CLI::App* run, const std::string& names, std::string& target,
                      const std::string& type, const std::string& help) {
    return run->add_option(names, target, help)->type_name(type);
}

void declare_where(CLI::App* run, RunOptions& options) {
    constexpr const char* kGroup = "Where and how large";
    add_number(run, "-N,--nodes", options.nodes, 1, 16'384, "Nodes (default: 1)")->group(kGroup);
    add_number(run, "--min-nodes", options.min_nodes, 1, 16'384,
               "Go on with as few nodes when others are lost, and grow back (default: all of them)")
        ->group(kGroup);
    add_number(run, "-n,--ranks-per-node,--nproc-per-node", options.ranks_per_node, 1, 1024,
               "Ranks on each node (default: one a GPU, else 1)")
        ->group(kGroup);
    add_number(run, "-G,--gpus-per-node", options.gpus_per_node, 0, 64,
               "GPUs on each node (default: 0)")
        ->group(kGroup);
    add_text(run, "--gpu-type", options.gpu_type, "NAME",
             "Which GPUs, as Slurm calls them: h100 (default: any)")
        ->group(kGroup);
    add_number(run, "--ranks-per-gpu", options.ranks_per_gpu, 1, 64,
               "Ranks that share a GPU, to try out a script (default: 1; needs NCCL 2.30)")
        ->group(kGroup);
    add_number(run, "-c,--cpus-per-rank", options.cpus_per_rank, 1, 4096,
               "Cores for each rank (default: 1)")
        ->group(kGroup);
    add_text(run, "--mem", options.memory, "SIZE",
             "Memory of each node: 64G or 1500M (default: what Slurm gives)")
        ->group(kGroup);
    add_text(run, "-t,--time", options.time_limit, "TIME",
             "Time limit: 1h30m, 90 (minutes), 4:00:00 or 1-00:00:00 (default: the partition's)")
        ->group(kGroup);
    add_text(run, "-p,--partition", options.partition, "NAME", "Slurm's partition")->group(kGroup);
    declare_placement(*run, options.placement, "", kGroup);
    run->add_flag("--exclusive", options.exclusive, "No other job on its nodes (Slurm)")
        ->group(kGroup);
    run->add_option("--sbatch", options.sbatch,
                    "Another option of sbatch's: licenses=matlab, or contiguous. May be given "
                    "again")
        ->type_name("OPTION[=VALUE]")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(kGroup);
}

void declare_what(CLI::App* run, RunOptions& options) {
    constexpr const char* kGroup = "What the ranks get";
    add_text(run, "--setup", options.setup, "TEXT",
             "Shell text that runs on each node before its ranks, in a login shell: \"module load "
             "cuda/12\". What it exports is theirs; the first command that fails ends the job")
        ->group(kGroup);
    run->add_option("--env", options.environment,
                    "A variable for the ranks, before all others; NAME alone takes it from here. "
                    "May be given again")
        ->type_name("NAME=VALUE")
        ->expected(1)
        ->allow_extra_args(false)  // or it would take the "--" behind it for its own end
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(kGroup);
    run->add_flag("--no-environment", options.bare, "Do not pass on this shell's environment")
        ->group(kGroup);
    add_text(run, "-D,--chdir", options.directory, "DIR",
             "Where the ranks start; the nodes must see it (default: this directory)")
        ->group(kGroup);
    run->add_flag("--snapshot", options.snapshot,
                  "From a copy of the git work tree as it is now, changes included. The copy is "
                  "below --data-dir; lockstep rm removes it if that is lockstepd's own")
        ->group(kGroup);
    // The trainer's own jobs are documents.
    std::vector<std::string> frameworks;
    std::string choices;
    for (const std::string_view name : framework_names()) {
        if (name != to_string(Framework::native)) {
            frameworks.emplace_back(name);
            choices += (choices.empty() ? "" : "|") + frameworks.back();
        }
    }
    run->add_option("--framework", options.framework,
                    "Whose variables the ranks read (default: by what the script imports)")
        ->check(one_of(frameworks))
        ->type_name(choices)
        ->group(kGroup);
    run->add_option("--launch", options.launch,
                    "Who starts the ranks: lockstep, the command on each node (torchrun), or srun "
                    "(default: by the command)")
        ->check(one_of({"rank", "node", "task"}))
        ->type_name("rank|node|task")
        ->group(kGroup);
    add_number(
        run, "--max-restarts", options.max_restarts, 0, 1000,
        "How often the ranks are started again after a failure (default: 0; with --min-nodes 3)")
        ->group(kGroup);
    CLI::Option* sweep =
        run->add_option(
               "--sweep", options.sweep,
               "A job for each value, which takes the place of {NAME} in the command, --env, "
               "--label, --name and --setup: lr=0.1,0.01 or seed=1..5. Given again: each "
               "combination. NAME may be a field, as resources.nodes")
            ->type_name("NAME=VALUES")
            ->expected(1)
            ->allow_extra_args(false)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->group(kGroup);
    add_number(run, "--max-parallel", options.max_parallel, 1, 1000,
               "So many jobs of the sweep at once (default: all)")
        ->needs(sweep)
        ->group(kGroup);
    run->add_option("--secret", options.secrets,
                    "A secret that the ranks get as a variable (lockstep secret set NAME). May be "
                    "given again")
        ->type_name("NAME")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(kGroup);
    run->add_option(
           "--notify", options.notify,
           "Who is notified when it ends, is interrupted or hangs: mail (you), mail:ADDRESS, "
           "webhook:URL. May be given again")
        ->type_name("TARGET")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(kGroup);
}

void declare_how(CLI::App* run, Options& options) {
    constexpr const char* kGroup = "How it is shown";
    add_text(run, "--name,-J", options.run.name, "NAME", "The job's name (default: the script's)")
        ->group(kGroup);
    run->add_option("--label", options.run.labels,
                    "A label to find the job by: lockstep jobs --label NAME=VALUE. May be given "
                    "again")
        ->type_name("NAME=VALUE")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(kGroup);
    CLI::Option* follow = run->add_flag("-f,--follow", options.follow,
                                        "Wait, and show every rank (default on a terminal)");
    CLI::Option* wait =
        run->add_flag("-w,--wait", options.wait, "Wait, and print one line per change of state");
    CLI::Option* logs = run->add_flag("-l,--logs", options.run.logs,
                                      "Wait, and print the output of rank 0 as it comes");
    CLI::Option* detach =
        run->add_flag("-d,--detach", options.run.detach, "Print the job's id and exit");
    wait->excludes(follow);
    logs->excludes(follow)->excludes(wait)->excludes(run->get_option("--sweep"));
    detach->excludes(follow)->excludes(wait)->excludes(logs);
    for (CLI::Option* option : {follow, wait, logs, detach}) {
        option->group(kGroup);
    }
    add_text(run, "-o,--output", options.run.output, "FILE",
             "Also write the specification there, for lockstep submit; - is standard output")
        ->group(kGroup);
    run->add_flag("--dry-run", options.run.dry_run, "Show what would run, without running it")
        ->group(kGroup);
}

// The place of the verb, or npos. Values of options before it are no verbs.
std::size_t place_of_verb(const CLI::App& app, const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == "--") {
            return std::string::npos;
        }
        if (word.empty() || word.front() != '-') {
            return i;
        }
        const CLI::Option* option =
            word.find('=') == std::string::npos ? app.get_option_no_throw(word) : nullptr;
        i += option != nullptr && option->get_items_expected_max() > 0 ? 1 : 0;
    }
    return std::string::npos;
}

// Whether the next word is this one's value: "-N 4", "--time 1:00"; not "-N4", "--time=1:00", -f.
bool takes_next(const CLI::App& app, const CLI::App& run, const std::string& word) {
    if (word.find('=') != std::string::npos) {
        return false;
    }
    const auto find = [&](const std::string& name) {
        const CLI::Option* option = run.get_option_no_throw(name);
        return option != nullptr ? option : app.get_option_no_throw(name);
    };
    if (word.starts_with("--")) {
        const CLI::Option* option = find(word);
        return option != nullptr && option->get_items_expected_max() > 0;
    }
    // -fN 4: flags together; the first option with a value has the rest of the word, if any.
    for (std::size_t i = 1; i < word.size(); ++i) {
        const CLI::Option* option = find(std::string("-") + word[i]);
        if (option != nullptr && option->get_items_expected_max() > 0) {
            return i + 1 == word.size();
        }
    }
    return false;
}

// "--state=" is --state with an empty value, which the parser would take from the next word.
void split_empty_values(std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
        if (words[i].size() > 3 && words[i].starts_with("--") && words[i].ends_with('=') &&
            words[i].find('=') + 1 == words[i].size()) {
            words[i].pop_back();
            words.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, "");
        }
    }
}

const CLI::App* verb_named(const CLI::App& app, const std::string& name) {
    const auto found =
        app.get_subcommands([&name](const CLI::App* one) { return one->get_name() == name; });
    return found.empty() ? nullptr : found.front();
}

// "--state", "-n"
std::vector<std::string> option_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) {
            names.push_back("--" + name);
        }
        for (const std::string& name : option->get_snames()) {
            names.push_back("-" + name);
        }
    }
    return names;
}

}  // namespace

void declare_run(CLI::App& app, Options& options) {
    CLI::App* run = app.add_subcommand(
        "run", "Run a command on many ranks, as it works here: no specification needed");
    run->fallthrough();
    run->add_option("COMMAND", options.run.command, "The program of each rank and its arguments")
        ->type_name("COMMAND");
    declare_where(run, options.run);
    declare_what(run, options.run);
    declare_how(run, options);
    run->footer(kRunExamples);
}

std::vector<std::string> prepared_arguments(const CLI::App& app, std::vector<std::string> words) {
    const std::size_t verb = place_of_verb(app, words);
    if (verb == std::string::npos) {
        return words;
    }
    if (words[verb] == "version") {
        return {"--version"};
    }
    if (words[verb] == "help") {
        words.erase(words.begin() + static_cast<std::ptrdiff_t>(verb));
        words.emplace_back("--help");
        return words;
    }
    const CLI::App* run = words[verb] == "run" ? verb_named(app, "run") : nullptr;
    for (std::size_t i = verb + 1; run != nullptr && i < words.size(); ++i) {
        if (words[i] == "--") {
            break;
        }
        if (words[i].empty() || words[i].front() != '-') {
            words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), "--");
            break;
        }
        i += takes_next(app, *run, words[i]) ? 1 : 0;
    }
    split_empty_values(words);  // not of the command of run, which is behind its "--" now
    return words;
}

std::string unknown_verb(const CLI::App& app, const std::vector<std::string>& words) {
    const std::size_t place = place_of_verb(app, words);
    if (place == std::string::npos) {
        return "";
    }
    std::vector<std::string> verbs;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (verb->get_name() == words[place]) {
            return "";
        }
        if (!verb->get_group().empty()) {
            verbs.push_back(verb->get_name());
        }
    }
    const std::string near = nearest(words[place], verbs);
    return "unknown command " + words[place] + (near.empty() ? "" : "; did you mean " + near + "?");
}

std::string unknown_option(const CLI::App& app, const std::vector<std::string>& words) {
    const std::size_t place = place_of_verb(app, words);
    const CLI::App* verb = place == std::string::npos ? nullptr : verb_named(app, words[place]);
    if (verb == nullptr) {
        return "";
    }
    std::vector<std::string> known = option_names(*verb);
    const auto general = option_names(app);
    known.insert(known.end(), general.begin(), general.end());
    for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
        if (words[i].size() < 2 || words[i].front() != '-') {
            continue;
        }
        const bool is_long = words[i][1] == '-';
        const std::string name =
            is_long ? words[i].substr(0, words[i].find('=')) : words[i].substr(0, 2);  // -n4
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            const std::string near = is_long ? nearest(name, known) : "";
            return "unknown option " + name + " of lockstep " + verb->get_name() +
                   (near.empty() ? "" : "; did you mean " + near + "?");
        }
        i += takes_next(app, *verb, words[i]) ? 1 : 0;
    }
    return "";
}

std::string not_utf8(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (!is_utf8_text(words[i])) {
            return "argument " + std::to_string(i + 1) + " is not UTF-8: " + words[i];
        }
    }
    return "";
}

}  // namespace lockstep::cli
