#include "job/cli/options.hpp"

#include "job/base/version.hpp"
#include "job/cli/access.hpp"
#include "job/cli/arguments.hpp"
#include "job/cli/checks.hpp"
#include "job/cli/options_parts.hpp"
#include "job/cli/placement.hpp"
#include "job/model/state.hpp"

#include <string>
#include <vector>

namespace lockstep::cli {
namespace {

// Of the verbs in --help, in the order in which they are shown.
struct VerbGroup {
    const char* name;
    std::vector<const char*> verbs;
};

void group_verbs(CLI::App& app) {
    const std::vector<VerbGroup> groups{
        {"Start", {"run", "submit", "render", "script", "explain"}},
        {"Watch",
         {"jobs", "show", "follow", "ranks", "top", "logs", "evidence", "profile", "events",
          "series", "export", "spec", "open"}},
        {"Act", {"cancel", "restart", "checkpoint", "rm", "du"}},
        {"Cluster", {"nodes", "cluster"}},
        {"Access", {"login", "whoami", "token", "secret", "slurm-token", "completion"}}};
    for (const VerbGroup& group : groups) {
        for (const char* name : group.verbs) {
            app.get_subcommand(name)->group(group.name);
        }
    }
}

void declare_access(CLI::App& app, Options& options) {
    app.add_option("--url", options.url,
                   "Address of lockstepd (default: what it wrote to <data-dir>/url, else " +
                       std::string(kDefaultUrl) + ")")
        ->envname("LOCKSTEP_URL")
        ->type_name("URL");
    app.add_option("--token-file", options.token_file,
                   "File that holds the access token (default: <data-dir>/token)")
        ->type_name("FILE");
    app.add_option("--fingerprint", options.fingerprint,
                   "What an https daemon's certificate must hash to (default: what login stored or "
                   "the local lockstepd's, else the system's authorities decide)")
        ->envname("LOCKSTEP_FINGERPRINT")
        ->type_name("HASH");
    app.add_option("--data-dir", options.data_dir,
                   "Where a lockstepd of this machine keeps its token (default: "
                   "~/.local/share/lockstep)")
        ->envname("LOCKSTEP_DATA_DIR")
        ->type_name("DIR");
    app.add_option("--config", options.config,
                   "Settings: lines url, token-file, fingerprint, listener = … (default: "
                   "~/.config/lockstep/config.toml)")
        ->type_name("FILE");
    app.add_flag("--json", options.json, "Print the daemon's answer as JSON");
}

void declare_submit(CLI::App& app, Options& options) {
    CLI::App* submit = verb(app, "submit", "Submit a job specification");
    submit
        ->add_option("FILE", options.file,
                     "Specification, YAML or JSON; - reads standard input. Relative paths and ~ in "
                     "it are yours, $NAME in environment is what it is here")
        ->required()
        ->type_name("FILE");
    CLI::Option* wait = submit->add_flag("-w,--wait", options.wait,
                                         "Stay until the job has ended; one line a change");
    submit
        ->add_flag("-f,--follow", options.follow,
                   "Stay and show every rank until the job has ended")
        ->excludes(wait);
    CLI::Option* key = submit->add_option(
        "--idempotency-key", options.idempotency_key,
        "Name of this submission: the same key never makes a second job, for 90 days after the "
        "job was removed either (default: random)");
    key->check(visible_key())->type_name("KEY");
    CLI::App* render =
        verb(app, "render",
             "Show what a submission would run, and when Slurm would start it, without running it");
    render->add_option("FILE", options.file, "Specification, YAML or JSON; - reads standard input")
        ->required()
        ->type_name("FILE");
    CLI::App* script = verb(app, "script", "Show the batch script of a job or a specification");
    script->add_option("FILE|ID", options.id, "Specification, YAML or JSON, or a job id")
        ->required()
        ->type_name("FILE|ID");
}

// One of the states of a job, or of those that are final.
void takes_state(CLI::Option& option, bool final_only) {
    std::vector<std::string> names;
    std::string choices;
    for (const JobStateRow& row : kJobStateRows) {
        if (row.final || !final_only) {
            names.emplace_back(row.name);
            choices.append(choices.empty() ? "" : "|").append(row.name);
        }
    }
    option.check(one_of(names))->type_name(choices);
}

void declare_jobs(CLI::App& app, Options& options) {
    CLI::App* jobs = verb(app, "jobs", "List jobs, newest first");
    takes_state(*jobs->add_option("--state", options.state, "Only jobs in this state"), false);
    jobs->add_option("--search", options.search,
                     "Only jobs with these words in id, name, user, framework, labels or cause")
        ->type_name("WORDS");
    jobs->add_option("--user", options.user, "Only jobs of this user")->type_name("USER");
    jobs->add_option("--name", options.name, "Only jobs with this name")->type_name("NAME");
    jobs->add_option("--label", options.label, "Only jobs with this label")
        ->type_name("NAME=VALUE");
    jobs->add_option("--sweep", options.sweep,
                     "The jobs of the sweep that this job is of, the lowest loss first, with their "
                     "parameters")
        ->type_name("ID");
    jobs->add_option("-n,--limit", options.limit, "At most so many")
        ->check(whole_number(1, 1'000'000))
        ->type_name("N")
        ->capture_default_str();
    jobs->add_flag("-a,--all", options.all, "All of them");
    jobs->add_flag("-q,--quiet", options.quiet, "Ids only, one a line");
}

void declare_disk(CLI::App& app, Options& options) {
    CLI::App* rm = verb(app, "rm",
                        "Remove jobs that are over, with their logs, telemetry and the checkpoints "
                        "in lockstepd's folder");
    rm->add_option("ID", options.ids, "Ids, parts of them, names that one job has, @N, last")
        ->type_name("ID");
    rm->add_flag("--sweep", options.whole_sweep, "Every job of the sweeps they are of");
    CLI::Option* old =
        rm->add_option("--older-than", options.older_than,
                       "Your jobs that ended so long ago (30d) or before a time "
                       "(2026-11-22T08:30:00Z), but for those with a label named keep")
            ->type_name("TIME");
    // Without it they would select nothing: named jobs are removed in any state.
    CLI::Option* ended =
        rm->add_option("--state", options.state, "--older-than: only those that ended so");
    takes_state(*ended->needs(old), true);
    rm->add_option("--name", options.name, "--older-than: only those of this name")
        ->needs(old)
        ->type_name("NAME");
    rm->add_flag("--keep-checkpoints", options.keep_checkpoints, "The checkpoints stay");
    CLI::Option* yes = rm->add_flag("-y,--yes", options.yes, "Do not ask");
    rm->add_flag("--dry-run", options.dry_run,
                 "Say what would go, with its size, and remove nothing")
        ->excludes(yes);
    CLI::App* du = verb(app, "du", "Show what jobs take on disk, the largest first");
    du->add_option("ID", options.ids, "Only these (default: all jobs)")->type_name("ID");
    du->add_option("--user", options.user, "Only jobs of this user")->type_name("USER");
    du->add_option("-n,--limit", options.limit, "Show so many, the largest")
        ->check(whole_number(1, 1'000'000))
        ->type_name("N")
        ->capture_default_str();
    du->add_flag("-a,--all", options.all, "Show all, and measure all however long that takes");
}

void declare_cluster(CLI::App& app, Options& options) {
    CLI::App* nodes =
        verb(app, "nodes",
             "List the scheduler's nodes, what runs on them and how often each was at "
             "fault; nodes NAME: one of them, with its faults; nodes check: check whether ranks "
             "could meet on some nodes, without training");
    nodes
        ->add_option("NAME", options.nodes_action,
                     "check, a node's name, or nothing to list them all")
        ->type_name("NAME|check");
    nodes->add_option("--nodes", options.nodes, "check: so many nodes")
        ->check(whole_number(1, 16'384))
        ->type_name("N")
        ->capture_default_str();
    nodes->add_option("--gpus", options.gpus, "check: GPUs that each node must have")
        ->check(whole_number(0, 64))
        ->type_name("N");
    nodes->add_flag("--cpu-test", options.cpu_test,
                    "check: train for a moment on each node's CPUs, compare the times");
    nodes->add_flag("--gpu-test", options.gpu_test,
                    "check: compute on every GPU and move its memory, compare GPUs of one model; "
                    "with --gpus");
    nodes->add_flag("--pair-test", options.pair_test,
                    "check: test the nodes in pairs, twice, with other partners");
    nodes->add_flag("--nccl-test", options.nccl_test,
                    "check: NCCL's all-reduce over the GPUs of two nodes at a time, twice, compare "
                    "the bandwidths; with --gpus");
    nodes->add_option("-p,--partition", options.partition, "Only nodes of this partition")
        ->type_name("NAME");
    declare_placement(*nodes, options.placement, "check: ", "");
    nodes->add_option("-t,--time", options.time_limit, "check: time limit (default: 15 minutes)")
        ->type_name("TIME");
    nodes->add_option("--state", options.state, "Only usable, unusable or idle ones, or a state")
        ->type_name("STATE");
    verb(app, "cluster", "Show the scheduler, its partitions and what is free");
}

// A variable of the shell that is not set, as in --name "$NAME", is not what was meant: without a
// name all jobs are. The command of run and what it gets may be anything.
void refuse_empty_values(CLI::App& app) {
    const auto refuse = [](CLI::App& of) {
        for (CLI::Option* option : of.get_options()) {
            if (option->get_items_expected_max() > 0) {
                option->check(not_empty());
            }
        }
    };
    refuse(app);
    for (CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (verb->get_name() != "run") {
            refuse(*verb);
        }
    }
}

}  // namespace

Exit exit_code(Errc code) {
    switch (code) {
        case Errc::invalid:
            return Exit::usage;
        case Errc::not_found:
            return Exit::not_found;
        case Errc::conflict:
            return Exit::conflict;
        case Errc::denied:
            return Exit::denied;
        case Errc::cancelled:
            return Exit::interrupted;
        case Errc::exhausted:
        case Errc::unavailable:
        case Errc::timed_out:
        case Errc::corrupt:
        case Errc::internal:
            break;
    }
    return Exit::unreachable;
}

void declare(CLI::App& app, Options& options) {
    app.name("lockstep");
    app.description("Submit training jobs to lockstepd and watch every rank.");
    app.set_version_flag("--version", "lockstep " + std::string(kVersion));
    app.set_help_flag("-h,--help", "Print this help");
    app.require_subcommand(1);
    declare_access(app, options);
    declare_run(app, options);
    declare_submit(app, options);
    declare_jobs(app, options);
    declare_one_job(app, options);
    declare_disk(app, options);
    declare_cluster(app, options);
    declare_identity(app, options);
    CLI::App* open = verb(app, "open", "Open the web page in a browser, signed in");
    open->add_option("ID", options.id, "The page of this job: its id, name, last or @3")
        ->type_name("ID");
    open->add_flag("--print", options.print_url,
                   "Print the address instead; it signs in once, within a minute");
    verb(app, "completion", "Print a completion script: eval \"$(lockstep completion bash)\"")
        ->add_option("SHELL", options.shell, "bash, zsh or fish")
        ->required()
        ->check(one_of({"bash", "zsh", "fish"}))
        ->type_name("bash|zsh|fish");
    verb(app, "explain",
         "Explain a field of the specification, as in resources.spares, or a cause, as in "
         "rank_exit")
        ->add_option("FIELD", options.field, "Its name, or nothing to list the fields")
        ->type_name("FIELD");
    verb(app, "manual", "Print a man page")
        ->group("")  // for the build; not listed
        ->add_option("PAGE", options.page, "job: lockstep-job(5)");
    group_verbs(app);
    keep_to_actions(app, options);
    refuse_empty_values(app);
    dress_help(app, terminal_columns());
}

ManualText manual_text() {
    ManualText text;
    text.section = 1;
    text.title = "command line of Lockstep";
    text.description = {
        "Lockstep gets every rank of a training job to the starting line, keeps the ranks in step "
        "and shows each one. lockstep talks to lockstepd over HTTP: it runs a command or submits a "
        "specification, follows the job and prints what the ranks report.",
        "On a terminal, run, follow and submit --follow draw one line a rank and a progress bar; "
        "in a pipe they print plain lines. Interrupting them leaves the job running. When "
        "lockstepd restarts they connect again by themselves.",
        "top takes the whole terminal: s sorts by the next of busy, loss, step, gpu and rank, r "
        "turns the order around, the arrows, PgUp, PgDn, Home and End scroll, space pauses, ? "
        "explains and q quits. In a pipe it prints one table. A rank with an anomaly of the last "
        "10 minutes, or that still hangs, is marked !, one that has failed x. It ends with the "
        "job.",
        "series draws a plot: each column from its lowest to its highest value, up to four ranks "
        "as lines, more as a band with their median; ! marks what was not finite, R a restart. In "
        "a pipe it prints rows of x, rank, min, max and last with tabs between."};
    constexpr const char* kRun =
        "run takes a command as it works here: the ranks get this directory and this shell's "
        "environment, virtual and conda environments with it, but for what belongs to the login "
        "session, the terminal or another launcher. Where no lockstepd runs it starts one. On a "
        "terminal it stays with the job; Ctrl-C leaves the job running, a second one within 2 "
        "seconds cancels it.";
    text.description.insert(text.description.begin() + 1, kRun);
    text.environment = {
        {"LOCKSTEP_URL", "Address of lockstepd, like --url."},
        {"LOCKSTEP_TOKEN", "Access token itself."},
        {"LOCKSTEP_FINGERPRINT", "Like --fingerprint; lockstepd logs its own at the start."},
        {"LOCKSTEP_DATA_DIR", "Like --data-dir."},
        {"NO_COLOR", "When set to anything, no colours."},
        {"COLUMNS, LINES", "Size of the output when it is no terminal."}};
    text.files = {
        {"~/.config/lockstep/config.toml",
         "Settings: url, token-file, fingerprint and listener, as login writes them. Flags and "
         "variables win; for another url they are not used. listener: the uid whose socket may "
         "have the token over http:// at a loopback address, beside yours, root's and that of "
         "the owner of the data directory or of /var/lib/lockstep."},
        {"~/.config/lockstep/token", "The token that login was given, mode 0600."},
        {"~/.local/share/lockstep/token",
         "Token of the lockstepd that runs as you. Used for addresses of this machine only."},
        {"~/.local/share/lockstep/url", "Address of the lockstepd that runs as you."},
        {"~/.local/share/lockstep/fingerprint", "Of its TLS certificate."}};
    text.exits = {{"0", "Done; with --wait or --follow: the job succeeded."},
                  {"1", "The job failed (submit --wait, submit --follow, follow)."},
                  {"2", "Wrong arguments, or the specification was refused."},
                  {"3", "No such job, rank or metric."},
                  {"4", "lockstepd does not answer, or cannot at the moment."},
                  {"5", "Not allowed: no token, a wrong one, or one without this right."},
                  {"6", "Conflict: a key used for something else, an export that is there."},
                  {"7", "The job was cancelled (submit --wait, submit --follow, follow)."},
                  {"8", "The output or the export could not be written."},
                  {"130", "Interrupted; the job goes on."}};
    text.examples = {{"lockstep run -N 2 -n 4 -t 1:00:00 -- python train.py --lr 0.1",
                      "Train on 2 nodes with 4 ranks each, as the script runs here."},
                     {"lockstep run --sweep lr=0.1,0.01 -- python train.py --lr {lr}",
                      "A job for each value, then what each has reached."},
                     {"lockstep submit train.json --follow", "Submit a job and watch it."},
                     {"lockstep login https://10.0.0.1:8470", "Use the daemon of that machine."},
                     {"lockstep top ls-01JCXW", "Watch its ranks, the slowest first."},
                     {"lockstep series ls-01JCXW loss", "Plot the loss of every rank."},
                     {"lockstep export ls-01JCXW --tensorboard runs", "For TensorBoard."},
                     {"lockstep series ls-01JCXW step_seconds --rank 3 --from 30m",
                      "Plot the step times of rank 3 over the last half hour."},
                     {"lockstep token create laptop --expires 12h > token",
                      "A token of your own that ends in the evening."},
                     {"lockstep jobs --state running --json", "What runs, for a program."},
                     {"lockstep rm --older-than 30d --dry-run",
                      "Which of your jobs would go, and how much they take."}};
    text.see_also = {"lockstep-job(5)", "lockstep-agent(1)", "lockstep-train(1)", "lockstepd(8)"};
    return text;
}

}  // namespace lockstep::cli
