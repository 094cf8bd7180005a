// The options of the verbs that show a job or are done to it.
#include "job/base/limits.hpp"
#include "job/cli/arguments.hpp"
#include "job/cli/checks.hpp"
#include "job/cli/options_parts.hpp"

#include <string>

namespace lockstep::cli {

CLI::App* verb(CLI::App& app, const std::string& name, const std::string& help) {
    CLI::App* made = app.add_subcommand(name, help);
    made->fallthrough();
    return made;
}

CLI::App* job_verb(CLI::App& app, Options& options, const std::string& name,
                   const std::string& help) {
    CLI::App* made = verb(app, name, help);
    made->add_option("ID", options.id,
                     "Any unique part of the job's id, its name, last (your newest), or @3 (line 3 "
                     "of lockstep jobs)")
        ->required()
        ->type_name("ID");
    return made;
}

namespace {

void declare_export(CLI::App& app, Options& options) {
    CLI::App* verb = job_verb(app, options, "export",
                              "Write every stored sample of a job for TensorBoard, as CSV or JSON");
    CLI::Option* tensorboard =
        verb->add_option("--tensorboard", options.tensorboard,
                         "Event files: a run per rank, rank-00000 upwards, and job with the mean "
                         "over the ranks; a step done again after a restart is there twice")
            ->type_name("DIR");
    CLI::Option* csv =
        verb->add_option("--csv", options.csv,
                         "rank,attempt,generation,step,time,metric,value; - is standard output")
            ->type_name("FILE");
    CLI::Option* json = verb->add_option("--json", options.json_lines,
                                         "The same as one JSON object a line; - is standard output")
                            ->type_name("FILE");
    csv->excludes(tensorboard)->excludes(json);
    json->excludes(tensorboard);
    verb->add_flag("--gpus", options.of_gpus,
                   "Of the job's GPUs instead of its ranks, with node,gpu,ranks for rank; --rank: "
                   "of those that these ranks use")
        ->excludes(tensorboard);
    verb->add_option("--metric", options.metrics, "Only these, as in loss,grad_norm (default: all)")
        ->type_name("NAME,...")
        ->expected(1)
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    verb->add_option("--rank", options.ranks, "Only these, as in 0-3,7 (default: all)")
        ->type_name("SET");
    verb->add_flag("--overwrite", options.overwrite, "Replace an earlier export");
}

void declare_logs(CLI::App& app, Options& options) {
    CLI::App* logs = job_verb(app, options, "logs",
                              "Print what ranks wrote; of several ranks in the order of time");
    CLI::Option* ranks =
        logs->add_option("--rank", options.rank, "Which ranks, as in 0-3,7, or all (default: 0)")
            ->type_name("SET|all");
    CLI::Option* failed = logs->add_flag("--failed", options.failed, "The ranks that failed");
    failed->excludes(ranks);
    logs->add_option("--attempt", options.log_attempt,
                     "Of this attempt (default: the newest that has begun)")
        ->check(whole_number(1, limits::kAttempts))
        ->type_name("N")
        ->excludes(failed);
    logs->add_flag("-f,--follow", options.log_follow,
                   "Keep printing until the job has ended, later attempts included; with "
                   "--attempt until that one has");
    logs->add_flag("-t,--timestamps", options.timestamps,
                   "Begin each line with its time and mark where a generation begins");
    CLI::Option* tail = logs->add_option("--tail", options.tail, "Only the last lines of each rank")
                            ->check(whole_number(1, 1'000'000))
                            ->type_name("N");
    logs->add_option("--since", options.since,
                     "Only lines from this time on (2026-11-22T08:30:00Z), or so long ago (30m)")
        ->type_name("TIME")
        ->excludes(tail);
    logs->add_option("--grep", options.grep, "Only lines that this regular expression (RE2) is in")
        ->type_name("REGEX");
}

void takes_key(CLI::App& verb, Options& options) {
    verb.add_option("--idempotency-key", options.idempotency_key,
                    "Name of this command: under the same key it is done once, however often it is "
                    "repeated (default: random)")
        ->check(visible_key())
        ->type_name("KEY");
}

}  // namespace

void declare_one_job(CLI::App& app, Options& options) {
    job_verb(app, options, "show", "Show one job: state, attempts, cause")
        ->add_flag("--environment", options.environment,
                   "The variables it was given; values of keys, tokens and passwords stay hidden");
    CLI::App* follow = job_verb(app, options, "follow", "Show every rank until the job has ended");
    follow->add_flag("-w,--wait", options.wait, "One line a change instead of the live view");
    CLI::App* ranks =
        job_verb(app, options, "ranks", "Show the ranks: step, loss, step time, node");
    ranks->add_flag("--watch", options.watch, "Refresh until the job has ended");
    CLI::App* top = job_verb(app, options, "top",
                             "Watch the ranks of a job: those that are busy longest first");
    top->add_option("--sort", options.sort,
                    "Sort order; s switches it (default: busy, or step where no rank has that)")
        ->check(one_of({"busy", "loss", "step", "gpu", "rank"}))
        ->type_name("busy|loss|step|gpu|rank");
    top->add_flag("-r,--reverse", options.reverse, "Reverse the order");
    top->add_option("--interval", options.interval_seconds, "Refresh interval in seconds")
        ->check(decimal_number(0.2, 3600))
        ->type_name("SECONDS")
        ->capture_default_str();
    top->add_flag("--once", options.once, "Print one table of all ranks and exit");
    declare_logs(app, options);
    CLI::App* evidence = job_verb(app, options, "evidence",
                                  "Show what the ranks of a hang were doing, lagging ones first");
    evidence->add_option("--rank", options.evidence_rank, "Print the texts of this rank")
        ->type_name("N");
    evidence->add_option("--what", options.what, "Print only this; stack: python and native")
        ->check(one_of({"all", "stack", "state", "kernel", "python", "native", "ras", "nccl",
                        "flight-recorder"}))
        ->type_name("all|stack|state|kernel|python|native|ras|nccl|flight-recorder");
    evidence->add_flag("--now", options.now,
                       "Capture the state of the ranks now, without stopping them");
    CLI::App* profile =
        job_verb(app, options, "profile", "Record what ranks do for some seconds while they train");
    profile
        ->add_option("--ranks,--rank", options.ranks,
                     "Which ranks, as in 0-3,7 (default: the first 16)")
        ->type_name("SET");
    profile->add_option("--seconds", options.profile_seconds, "For how long")
        ->check(whole_number(1, limits::kProfileSeconds))
        ->type_name("N")
        ->capture_default_str();
    profile->add_option("-o,--output", options.output, "Folder for the files (default: .)")
        ->type_name("DIR");
    profile->add_flag("--last", options.last, "Fetch the newest profile, record nothing");
    CLI::App* events = job_verb(app, options, "events", "Print what happened to a job, in order");
    events->add_flag("-f,--follow", options.log_follow, "Keep printing until the job has ended");
    CLI::App* series = job_verb(app, options, "series", "Plot what the ranks reported");
    series
        ->add_option("METRIC", options.metric, "loss, step_seconds, samples, or any name reported")
        ->required()
        ->type_name("METRIC");
    series->add_option("--ranks,--rank", options.ranks, "Which ranks, as in 0-3,7 (default: all)")
        ->type_name("SET");
    series
        ->add_option(
            "--from", options.from,
            "Begin at this step, at this time (2026-11-22T08:30:00Z), or so long ago (30m)")
        ->type_name("STEP|TIME");
    series->add_option("--to", options.to, "End there")->type_name("STEP|TIME");
    series->add_option("--points", options.points, "Points a rank (default: what fits)")
        ->check(whole_number(2, 4000))
        ->type_name("N");
    series->add_option("--x", options.x, "Quantity of the horizontal axis (default: step)")
        ->check(one_of({"step", "time"}))
        ->type_name("step|time");
    declare_export(app, options);
    CLI::App* cancel = job_verb(app, options, "cancel", "End a job");
    cancel->add_flag("--sweep", options.whole_sweep, "Cancel every job of its sweep");
    takes_key(*job_verb(app, options, "restart",
                        "Stop a job's ranks and start them again from the newest checkpoint"),
              options);
    takes_key(
        *job_verb(app, options, "checkpoint",
                  "Ask a job's ranks to write a checkpoint now, if all of them handle the signal"),
        options);
    job_verb(app, options, "spec", "Print a job's specification; what is absent has its default");
}

}  // namespace lockstep::cli
