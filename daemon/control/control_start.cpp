// What lockstepd takes up again when it starts: unfinished jobs, their place in the line, and where
// their agents find it.
#include "daemon/control/attempt_files.hpp"
#include "daemon/control/control_service.hpp"
#include "daemon/control/job_actor.hpp"
#include "job/async/on_thread.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kRecentJobs = 1000;  // looked at for ends that agents did not hear of

}  // namespace

// Where lockstepd keeps the file that the agents of a job's attempt read; of a signed job they read
// a copy of it, in a folder of their user's.
std::filesystem::path ControlService::ticket_folder(const Job& job) const {
    const Attempt& attempt = *job.attempt();
    return job.signature.empty()
               ? std::filesystem::path{attempt.directory}
               : attempt_directory(context_.settings.runs_dir, job.id, attempt.number);
}

Task<Status> ControlService::load_jobs() {
    const std::function<Result<std::vector<JobId>>(Database&)> list = [](Database& db) {
        return db.unfinished();
    };
    const auto ids = co_await context_.store.read<std::vector<JobId>>(list);
    if (!ids) {
        co_return fail(ids.error());
    }
    co_await registry_.count_stored();
    for (const JobId& id : *ids) {
        if (const Status restored = co_await restore(id); !restored) {
            co_return fail(restored.error().in(id.value));
        }
    }
    // An agent may not have heard that its job is over: it looks for us where we are now.
    const std::function<Result<std::vector<JobRow>>(Database&)> recent = [](Database& db) {
        RowQuery query;
        query.limit = kRecentJobs;
        return db.jobs(query);
    };
    const auto rows = co_await context_.store.read<std::vector<JobRow>>(recent);
    if (!rows) {
        co_return fail(rows.error());
    }
    const UnixMillis since =
        context_.clock.wall() - std::chrono::milliseconds{limits::kOrphanPatience}.count();
    for (const JobRow& row : *rows) {
        if (is_final(row.state) && row.finished_at >= since) {
            ended_lately_.push_back(row.id);
        }
    }
    for (const std::string& id : loaded_) {
        const Job& job = registry_.find(id)->job();
        if (job.spec.after.empty() || job.attempt() != nullptr) {
            continue;
        }
        auto after = co_await look_at_after(job.spec.after);
        if (!after) {
            co_return fail(after.error().in(id));
        }
        loaded_after_[id] = std::move(*after);
    }
    co_return Status{};
}

void ControlService::begin(AgentsListener agents, const std::string& page_url) {
    context_.settings.agents = std::move(agents);
    history_.begin();
    retention_.begin();
    notifier_.begin(page_url);
    for (const JobId& id : ended_lately_) {
        refresh_attempts_of(context_.settings.runs_dir / id.value, context_.settings.agents);
    }
    ended_lately_.clear();
    for (const std::string& id : loaded_) {
        const ActorPtr actor = registry_.find(id);
        const Attempt* attempt = actor->job().attempt();
        if (attempt != nullptr) {
            refresh_attempts({ticket_folder(actor->job())}, context_.settings.agents);
            window_.enter(id, actor->job().user);
            window_.set_aside(id, actor->aside());
            line_.occupy(entry(actor->job(), {}));
            actor->start();
        } else if (actor->job().cancel_requested_at != 0 || actor->job().blocked) {
            actor->start();
        } else if (const auto after = loaded_after_.find(id); after != loaded_after_.end()) {
            if (!after->second.failed.empty()) {
                actor->post(DependencyInput{after->second.failed});
            } else {
                actor->set_pending_reason(line_.add(entry(actor->job(), after->second.waiting)));
            }
        } else {
            actor->set_pending_reason(line_.add(entry(actor->job(), {})));
        }
    }
    loaded_after_.clear();
    if (!loaded_.empty()) {
        log::info("unfinished jobs taken up again", {{"jobs", loaded_.size()}});
    }
    loaded_.clear();
    admit_next();
}

Task<void> ControlService::serve_agents_as(AgentsListener agents) {
    context_.settings.agents = std::move(agents);
    std::vector<std::filesystem::path> places;
    for (const auto& [id, actor] : registry_.unfinished()) {
        if (actor->job().attempt() != nullptr) {
            places.push_back(ticket_folder(actor->job()));
        }
    }
    const std::function<Status()> tell = [places = std::move(places),
                                          listener = context_.settings.agents] {
        refresh_attempts(places, listener);
        return Status{};
    };
    co_await on_thread<Status>(context_.files, tell);
    context_.scheduler.agents_moved();
}

Task<Status> ControlService::restore(JobId id) {
    const std::function<Result<std::vector<Event>>(Database&)> read = [id](Database& db) {
        return db.events_of(id, 0, SIZE_MAX / 2);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    if (!events) {
        co_return fail(events.error());
    }
    if (events->empty()) {
        co_return fail(Errc::corrupt, "a job without events");
    }
    auto job = start_job(events->front());
    if (!job) {
        co_return fail(job.error());
    }
    for (std::size_t i = 1; i < events->size(); ++i) {
        if (const auto applied = apply(*job, (*events)[i]); !applied) {
            co_return fail(Errc::corrupt, "event " + std::to_string((*events)[i].seq) + ": " +
                                              applied.error().message);
        }
    }
    find_moved_folders(*job, context_.settings.copied);
    const bool placed = job->attempt() != nullptr;
    if (placed) {
        if (const Status series = co_await history_.restore(*job); !series) {
            co_return fail(series.error());
        }
    }
    const ActorPtr actor = make_actor(std::move(*job));
    if (placed) {
        const Attempt& attempt = *actor->job().attempt();
        tickets_[attempt.ticket_hash] = {actor, attempt.number};
    }
    loaded_.push_back(id.value);
    co_return Status{};
}

}  // namespace lockstep
