#include "job/cli/run.hpp"

#include "job/base/files.hpp"
#include "job/base/machine.hpp"
#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/follow.hpp"
#include "job/cli/interrupt.hpp"
#include "job/cli/new_file.hpp"
#include "job/cli/snapshot.hpp"
#include "job/cli/spec_file.hpp"
#include "job/cli/submit.hpp"
#include "job/cli/typed.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace lockstep::cli {
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
        std::string_view text{log->body};
        text.remove_suffix(text.ends_with('\n') ? 1 : 0);
        for (const std::string& line : split(text, '\n')) {
            context.out << settled(line) << "\n";
        }
        context.out << std::flush;
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
        context.err << "logs  " << folder << "/rank-*.log   (" << same_lockstep(context.options)
                    << " logs " << id << ")\n";
    }
}

std::string environment_text(const Recorded& recorded) {
    const std::size_t count = recorded.variables.size();
    std::string out =
        std::to_string(count) + (count == 1 ? " variable" : " variables") + " of this shell";
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
    // A job that has ended before its ranks began has no log, but a cause.
    return end == Exit::ok || end == Exit::not_found ? follow_job(context, id, true) : end;
}

namespace {

Exit stay_with(Context& context, const std::string& id) {
    const RunOptions& options = context.options.run;
    const bool follow = context.options.follow || options.logs ||
                        (context.terminal.interactive && !context.options.wait && !options.detach);
    if (!follow && !context.options.wait) {
        if (context.terminal.interactive) {
            const std::string lockstep = same_lockstep(context.options);
            context.err << "follow it: " << lockstep << " follow " << id
                        << "\nits output: " << lockstep << " logs " << id << " -f\n";
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

// Where -o wants it. A device or a pipe is written into: a file of that name would take its place.
Status keep_specification(Context& context, const Json& spec) {
    const std::string& target = context.options.run.output;
    const std::string text = dump_json_pretty(spec) + "\n";
    std::error_code error;
    const auto there = std::filesystem::status(target, error);
    if (target.empty()) {
        return {};
    }
    if (target == "-") {
        context.out << text;
        return {};
    }
    if (!std::filesystem::exists(there) || std::filesystem::is_regular_file(there)) {
        return write_file_atomic(target, text);
    }
    auto file = NewFile::open_existing(target);
    LOCKSTEP_TRY(file);
    const Status written = file->write(text);
    return written ? file->finish() : written;
}

// Whether the ranks start on this machine, as far as that can be told.
bool runs_here(const Context& context) {
    if (context.options.run.dry_run) {
        return false;  // nobody is asked
    }
    const auto cluster = context.client.get_json("/v1/cluster");
    return cluster && text_at(*cluster, "scheduler") == "local" &&
           text_at(*cluster, "name") == host_name();
}

// "" if the folder is there, or if that cannot be told.
std::string what_is_wrong_with(const std::string& folder) {
    std::error_code error;
    const auto there = std::filesystem::status(folder, error);
    if (there.type() == std::filesystem::file_type::not_found) {
        return "there is no such folder";
    }
    return std::filesystem::exists(there) && !std::filesystem::is_directory(there)
               ? "it is no folder"
               : "";
}

// The ranks would end before their first line. Where they start on other machines these may have
// the folder, so that it is a warning.
Status check_chdir(const Context& context, const Caller& caller,
                   std::vector<std::string>& warnings) {
    const std::string& given = context.options.run.directory;
    const std::string why = given.empty() ? "" : what_is_wrong_with(caller.directory);
    if (why.empty()) {
        return {};
    }
    const std::string option = "--chdir " + one_line(given) + ": " + why;
    const std::string full = given == caller.directory ? "" : " (" + caller.directory + ")";
    if (runs_here(context)) {
        return fail(Errc::invalid, option + full +
                                       "; create it, or leave --chdir out to start in this "
                                       "directory");
    }
    warnings.push_back(option + " on this machine" + full +
                       "; the job fails unless the nodes have it");
    return {};
}

// What lockstepd would refuse of the document whatever its scheduler is: a dry run asks nobody.
Status check_specification(const Json& spec) {
    if (has_sweep(spec)) {
        const auto sweep = parse_sweep(spec);
        return sweep ? Status{} : fail(sweep.error());
    }
    const auto one = parse_spec(spec);
    return one ? Status{} : fail(one.error());
}

// A snapshot that no job runs in is removed.
class UnusedCopy {
  public:
    UnusedCopy() = default;
    UnusedCopy(const UnusedCopy&) = delete;
    UnusedCopy& operator=(const UnusedCopy&) = delete;
    ~UnusedCopy() {
        std::error_code ec;
        if (!root_.empty()) {
            std::filesystem::remove_all(root_, ec);
        }
    }
    void made(std::filesystem::path root) { root_ = std::move(root); }
    // It stays. Its path, "" if there is none.
    std::string keep() { return std::exchange(root_, {}).string(); }

  private:
    std::filesystem::path root_;
};

// Makes the copy and has the job run there. A dry run that writes no specification makes none.
Status add_snapshot(Context& context, const Caller& caller, RunPlan& plan, UnusedCopy& copy) {
    const RunOptions& options = context.options.run;
    const bool only_planned = options.dry_run && options.output.empty();
    if (!options.dry_run) {  // before much is copied in vain
        const auto who = context.client.get_json("/v1/whoami");
        if (!who && who.error().code != Errc::denied) {  // a token may be for submitting alone
            return fail(who.error());
        }
    }
    Stop* const stop = context.stop;
    if (stop != nullptr) {
        stop->begin();
    }
    const auto snapshot = only_planned
                              ? planned_snapshot(caller.directory)
                              : take_snapshot(caller.directory, snapshots_folder(context.options),
                                              [stop] { return stop != nullptr && stop->asked(); });
    if (snapshot) {
        copy.made(snapshot->root);
    }
    if (stop != nullptr && stop->end()) {
        return fail(Errc::cancelled, "interrupted");
    }
    LOCKSTEP_TRY(snapshot);
    if (only_planned) {
        plan.decided.back() = {"directory",
                               "a copy of " + caller.directory + ", " + snapshot->summary};
    } else {
        plan.spec["working_directory"] = snapshot->directory;
        plan.decided.back() = {"directory", snapshot->directory + ", " + snapshot->summary};
    }
    Json labels = snapshot->labels;
    labels.update(at(plan.spec, "labels").is_object() ? plan.spec["labels"] : Json::object());
    plan.spec["labels"] = std::move(labels);  // what was asked for by name wins
    plan.warnings.insert(plan.warnings.end(), snapshot->warnings.begin(), snapshot->warnings.end());
    return {};
}

// Of the copy that a specification written by -o names, though no job runs in it.
void tell_of_copy(const Context& context, const std::string& root) {
    if (!root.empty()) {
        context.err << "the copy stays, as the specification names it: " << one_line(root) << "\n";
    }
}

}  // namespace

Result<Caller> caller_of(const RunOptions& options) {
    Caller caller = Caller::here();
    if (caller.directory.empty() && !options.directory.starts_with('/')) {
        return fail(Errc::invalid,
                    "the directory that you are in is not there any more, so no rank can start in "
                    "it: cd to another, or name one with --chdir /…");
    }
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
    if (const Status there = check_chdir(context, caller, plan->warnings); !there) {
        return report(context, there.error());
    }
    UnusedCopy copy;
    if (options.snapshot) {
        const Status taken = add_snapshot(context, caller, *plan, copy);
        if (!taken && taken.error().code == Errc::cancelled) {
            context.err << "\ninterrupted; no job was submitted\n";
            return Exit::interrupted;
        }
        if (!taken) {
            return report(context, taken.error());
        }
    }
    if (const Status kept = keep_specification(context, plan->spec); !kept) {
        context.err << "error: -o: " << one_line(kept.error().message) << "\n";
        return Exit::not_written;
    }
    const std::string named = options.output.empty() ? "" : copy.keep();  // by the file
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
    Document document;
    document.json = std::move(plan->spec);
    document.made_by = MadeBy::run;
    if (options.dry_run) {
        const Status good = check_specification(document.json);
        tell_of_copy(context, named);
        return good ? Exit::ok : report_mistakes(context, document, good.error());
    }
    const auto id = send_job(context, document, "");
    if (!id) {
        tell_of_copy(context, id.error().refused ? named : "");
    }
    if (id || !id.error().refused) {
        copy.keep();
    }
    return id ? stay_with(context, *id) : id.error().end;
}

}  // namespace lockstep::cli
