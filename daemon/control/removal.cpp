// Commands of ControlService that make a job none, and where it lies.
#include "daemon/control/control_service.hpp"
#include "daemon/control/job_actor.hpp"
#include "daemon/control/job_folder.hpp"
#include "job/base/log.hpp"

#include <algorithm>

namespace lockstep {

bool ControlService::snapshot_in_use(const std::string& snapshot) const {
    return std::any_of(registry_.unfinished().begin(), registry_.unfinished().end(),
                       [&](const auto& one) {
                           return folder_below(one.second->job().spec.working_directory,
                                               context_.settings.snapshots_dir) == snapshot;
                       });
}

// Why a job that is over has to stay for now.
Status ControlService::may_go(const std::string& id) const {
    if (const auto nodes = context_.scheduler.leaving(JobId{id})) {
        return fail(Errc::conflict, std::string{context_.scheduler.title()} + " still holds " +
                                        (nodes->empty() ? "a job of it" : "node " + *nodes) +
                                        "; when it has ended, try again");
    }
    for (const auto& [other, actor] : registry_.unfinished()) {
        const JobSpec& spec = actor->job().spec;
        for (const std::string* path : {&spec.working_directory, &spec.checkpoint.directory}) {
            if (other != id && folder_below(*path, context_.settings.runs_dir) == id) {
                return fail(Errc::conflict, other + ", which is not over, uses " + *path);
            }
        }
        const auto& after = spec.after;
        if (!actor->started() && std::find(after.begin(), after.end(), id) != after.end()) {
            return fail(Errc::conflict, other + " waits for it: its specification has after");
        }
    }
    for (const auto& [hash, ticket] : tickets_) {
        if (ticket.first->job().id.value == id && !ticket.first->links().empty()) {
            return fail(Errc::unavailable, "its agents are still leaving; try again in a moment");
        }
    }
    return {};
}

Task<Status> ControlService::remove_over(JobId job, bool checkpoints) {
    const std::string id = job.value;
    if (const Status may = may_go(id); !may) {
        co_return may;
    }
    if (checkpoints) {
        const std::function<Result<std::string>(Database&)> ask = [job](Database& db) {
            return db.user_of_folder(job);
        };
        const auto user = co_await context_.store.read<std::string>(ask);
        if (!user) {
            co_return fail(user.error());
        }
        if (!user->empty()) {
            co_return fail(Errc::conflict, *user + " has files in its folder: remove that one " +
                                               "first, or keep the checkpoints");
        }
    }
    const std::function<Result<std::optional<JobRow>>(Database&)> read = [job](Database& db) {
        return db.job(job);
    };
    const auto row = co_await context_.store.read<std::optional<JobRow>>(read);
    if (!row) {
        co_return fail(row.error());
    }
    RemovalRow removal;
    removal.job = job;
    removal.removed_at = context_.clock.wall();
    removal.checkpoints = checkpoints;
    const auto removed = co_await context_.store.remove_job(std::move(removal));
    if (!removed) {
        co_return fail(removed.error());
    }
    if (!*removed || !*row) {
        co_return fail(Errc::not_found, "no job " + id);
    }
    registry_.remove(id, (*row)->state);
    series_ages_.remove(id);
    context_.series.erase(id);
    published_.erase(id);
    std::erase_if(left_, [&](const Left& one) { return one.id == id; });
    for (auto at = tickets_.begin(); at != tickets_.end();) {
        at = at->second.first->job().id.value == id ? tickets_.erase(at) : std::next(at);
    }
    if (context_.bus.has_subscribers()) {
        Json gone = Json::object();
        gone["job"] = id;
        StreamMessage message;
        message.topic = "job." + id;
        message.event = "removed";
        message.data = std::make_shared<const std::string>(dump_json(gone));
        message.user = (*row)->user;
        context_.bus.publish(message);
    }
    retention_.hurry();
    co_return Status{};
}

Task<Result<std::string>> ControlService::remove(Caller caller, std::string id,
                                                 bool keep_checkpoints) {
    const auto actor = co_await registry_.commanded(caller, id);
    if (!actor) {
        co_return fail(actor.error());
    }
    if (*actor) {
        co_return fail(Errc::conflict, "the job is not over: lockstep cancel " + id + " ends it");
    }
    const auto shown = co_await registry_.show(caller, id);
    if (!shown) {
        co_return fail(shown.error());
    }
    const auto job = parse_json(**shown);
    if (!caller.admin && (!job || job->value("user", "") != caller.user)) {
        co_return fail(Errc::not_found, "no job " + id);
    }
    JobId key{id};
    if (const Status done = co_await remove_over(std::move(key), !keep_checkpoints); !done) {
        co_return fail(done.error());
    }
    log::info("job removed", {{"job", id}, {"by", caller.user}});
    Json out = Json::object();
    out["removed"] = id;
    out["directory"] = (context_.settings.runs_dir / id).string();
    out["checkpoints_kept"] = keep_checkpoints;
    co_return dump_json(out);
}

Task<Result<DiskPlace>> ControlService::disk(Caller caller, std::string id) {
    const auto shown = co_await registry_.show(caller, id);
    if (!shown) {
        co_return fail(shown.error());
    }
    const std::function<Result<std::int64_t>(Database&)> read = [job = JobId{id}](Database& db) {
        return db.history_bytes(job);
    };
    const auto history = co_await context_.store.read<std::int64_t>(read);
    if (!history) {
        co_return fail(history.error());
    }
    DiskPlace out;
    out.directory = (context_.settings.runs_dir / id).string();
    out.history_bytes = *history;
    co_return out;
}

}  // namespace lockstep
