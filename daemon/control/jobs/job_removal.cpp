#include "daemon/control/jobs/job_removal.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/actor/job_folder.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "daemon/control/jobs/signature_use.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/removal_records.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

}  // namespace

JobRemoval::JobRemoval(ControlContext& context, JobRegistry& registry, const TicketGate& gate,
                       JobLifecycle& lifecycle)
    : context_(context),
      registry_(registry),
      gate_(gate),
      lifecycle_(lifecycle),
      retention_(
          context, [this](JobId job) { return remove_over(std::move(job), true); },
          [this](const std::string& snapshot) { return snapshot_in_use(snapshot); },
          [this](JobId job) { return earlier_folder(std::move(job)); },
          [this](const std::string& job) { return registry_.find(job) != nullptr; }) {}

Task<Result<fs::path>> JobRemoval::earlier_folder(JobId job) {
    const std::string id = job.value;
    Caller lockstepd;
    lockstepd.admin = true;
    auto loading = registry_.load(std::move(lockstepd), id, kFirstEvents);
    const auto loaded = co_await std::move(loading);
    if (!loaded && loaded.error().code != Errc::corrupt) {
        co_return fail(loaded.error());
    }
    // One whose events do not read back can be removed all the same.
    fs::path folder = loaded ? first_folder(**loaded, context_.settings.copied) : fs::path{};
    co_return folder == context_.settings.runs_dir / id ? fs::path{} : folder;
}

bool JobRemoval::snapshot_in_use(const std::string& snapshot) const {
    return std::any_of(registry_.unfinished().begin(), registry_.unfinished().end(),
                       [&](const auto& one) {
                           return folder_below(one.second->job().spec.working_directory,
                                               context_.settings.snapshots_dir) == snapshot;
                       });
}

// Why a job that is over has to stay for now.
Status JobRemoval::may_go(const std::string& id, const fs::path& folder) const {
    if (const auto nodes = context_.scheduler.leaving(JobId{id})) {
        return fail(Errc::conflict, std::string{context_.scheduler.title()} + " still holds " +
                                        (nodes->empty() ? "a job of it" : "node " + *nodes) +
                                        "; when it has ended, try again");
    }
    for (const auto& [other, actor] : registry_.unfinished()) {
        const JobSpec& spec = actor->job().spec;
        for (const std::string* path : {&spec.working_directory, &spec.checkpoint.directory}) {
            if (other != id && (folder_below(*path, context_.settings.runs_dir) == id ||
                                folder_below(*path, folder.parent_path()) == id)) {
                return fail(Errc::conflict, other + ", which is not over, uses " + *path);
            }
        }
        const auto& after = spec.after;
        if (!actor->started() && std::find(after.begin(), after.end(), id) != after.end()) {
            return fail(Errc::conflict, other + " waits for it: its specification has after");
        }
    }
    if (gate_.has_agents(id)) {
        return fail(Errc::unavailable, "its agents are still leaving; try again in a moment");
    }
    return {};
}

Task<Status> JobRemoval::remove_over(JobId job, bool checkpoints, fs::path* where) {
    const std::string id = job.value;
    JobId asked = job;
    auto finding = earlier_folder(std::move(asked));
    const auto folder = co_await std::move(finding);
    LOCKSTEP_CO_TRY(folder);
    if (where != nullptr) {
        *where = folder->empty() ? context_.settings.runs_dir / id : *folder;
    }
    if (const Status may = may_go(id, *folder); !may) {
        co_return may;
    }
    if (checkpoints) {
        const std::function<Result<std::string>(Database&)> ask =
            [job, earlier = !folder->empty()](Database& db) {
                return JobRecords{db}.user_of_folder(job, earlier);
            };
        const auto user = co_await context_.store.read<std::string>(ask);
        LOCKSTEP_CO_TRY(user);
        if (!user->empty()) {
            co_return fail(Errc::conflict, *user + " has files in its folder: remove that one " +
                                               "first, or keep the checkpoints");
        }
    }
    const std::function<Result<std::optional<JobRow>>(Database&)> read = [job](Database& db) {
        return JobRecords{db}.find(job);
    };
    const auto row = co_await context_.store.read<std::optional<JobRow>>(read);
    LOCKSTEP_CO_TRY(row);
    auto reading = signature_of(context_, job);
    const std::string signature = co_await std::move(reading);
    RemovalRow removal;
    removal.job = job;
    removal.removed_at = context_.clock.wall();
    removal.checkpoints = checkpoints;
    removal.folder = folder->string();
    const auto removed = co_await context_.store.remove_job(std::move(removal));
    LOCKSTEP_CO_TRY(removed);
    if (!*removed || !*row) {
        co_return fail(Errc::not_found, "no job " + id);
    }
    lifecycle_.removed(id, (*row)->user, (*row)->state);
    forget_unused_signature(context_, registry_, (*row)->user, signature);
    retention_.wake();
    co_return Status{};
}

Task<Result<std::string>> JobRemoval::remove(Caller caller, std::string id, bool keep_checkpoints) {
    const auto actor = co_await registry_.commanded(caller, id);
    LOCKSTEP_CO_TRY(actor);
    if (*actor) {
        co_return fail(Errc::conflict, "the job is not over: lockstep cancel " + id + " ends it");
    }
    const auto shown = co_await registry_.show(caller, id);
    LOCKSTEP_CO_TRY(shown);
    const auto job = parse_json(**shown);
    if (!caller.admin && (!job || job->value("user", "") != caller.user)) {
        co_return fail(Errc::not_found, "no job " + id);
    }
    JobId key{id};
    fs::path where;
    if (const Status done = co_await remove_over(std::move(key), !keep_checkpoints, &where);
        !done) {
        co_return fail(done.error());
    }
    log::info("job removed", {{"job", id}, {"by", caller.user}});
    Json out = Json::object();
    out["removed"] = id;
    out["directory"] = where.string();
    out["checkpoints_kept"] = keep_checkpoints;
    co_return dump_json(out);
}

}  // namespace lockstep
