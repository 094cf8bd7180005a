#include "daemon/control/jobs/jobs_at_start.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <functional>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kRecentJobs = 1000;  // looked at for ends that agents did not hear of

}  // namespace

Task<Status> JobsAtStart::load() {
    const std::function<Result<std::vector<JobId>>(Database&)> list = [](Database& db) {
        return JobRecords{db}.unfinished();
    };
    const auto ids = co_await context_.store.read<std::vector<JobId>>(list);
    LOCKSTEP_CO_TRY(ids);
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
        return JobRecords{db}.list(query);
    };
    const auto rows = co_await context_.store.read<std::vector<JobRow>>(recent);
    LOCKSTEP_CO_TRY(rows);
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
        auto after = co_await admission_.look_at_after(job.spec.after);
        if (!after) {
            co_return fail(after.error().in(id));
        }
        after_[id] = std::move(*after);
    }
    co_return Status{};
}

void JobsAtStart::take_up() {
    for (const JobId& id : ended_lately_) {
        refresh_attempts_of(context_.settings.runs_dir / id.value, context_.settings.agents);
    }
    ended_lately_.clear();
    for (const std::string& id : loaded_) {
        const JobRegistry::ActorPtr actor = registry_.find(id);
        if (actor->job().attempt() != nullptr) {
            gate_.refresh(actor->job());
        }
        admission_.take_up(*actor, after_[id]);
    }
    after_.clear();
    context_.scheduler.taking_up();
    if (!loaded_.empty()) {
        log::info("unfinished jobs taken up again", {{"jobs", loaded_.size()}});
    }
    loaded_.clear();
    admission_.admit_next();
}

Task<Status> JobsAtStart::restore(JobId id) {
    const std::function<Result<std::vector<Event>>(Database&)> read = [id](Database& db) {
        return EventRecords{db}.of_job(id, 0, SIZE_MAX / 2);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(events);
    if (events->empty()) {
        co_return fail(Errc::corrupt, "a job without events");
    }
    auto job = start_job(events->front());
    LOCKSTEP_CO_TRY(job);
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
    const JobRegistry::ActorPtr actor = lifecycle_.begin(std::move(*job));
    if (placed) {
        gate_.admit(*actor);
    }
    loaded_.push_back(id.value);
    co_return Status{};
}

}  // namespace lockstep
