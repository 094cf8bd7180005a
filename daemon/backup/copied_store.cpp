#include "daemon/backup/copied_store.hpp"

#include "daemon/store/event_records.hpp"
#include "daemon/store/identity_records.hpp"
#include "daemon/store/job_records.hpp"
#include "job/model/job_view.hpp"

#include <utility>
#include <vector>

namespace lockstep {
namespace {

// The events that end the job, already applied to it.
Result<std::vector<Event>> end_of(Job& job, Seq& seq, const std::string& why, UnixMillis now) {
    std::vector<Event> out;
    const auto add = [&](EventData data) -> Status {
        Event event;
        event.seq = ++seq;
        event.job = job.id;
        event.time = now;
        event.data = std::move(data);
        if (Status applied = apply(job, event); !applied) {
            return applied;
        }
        out.push_back(std::move(event));
        return {};
    };
    Cause cause;
    cause.kind = CauseClass::scheduler;
    cause.message = why;
    if (const Attempt* attempt = job.attempt(); attempt != nullptr && attempt->finished_at == 0) {
        event::AttemptEnded ended;
        ended.attempt = attempt->number;
        ended.cause = cause;
        LOCKSTEP_TRY(add(std::move(ended)));
    }
    event::Finished finished;
    finished.state = JobState::failed;
    finished.cause = std::move(cause);
    LOCKSTEP_TRY(add(std::move(finished)));
    return out;
}

JobRow ended_row(const Job& job, UnixMillis now) {
    LiveView live;
    live.now = job.started_at != 0 ? now : 0;
    return row_of(job, dump_json(job_json(job, live)));
}

}  // namespace

Result<Job> fold_job(Database& database, const JobId& id) {
    const auto events = EventRecords{database}.of_job(id, 0, SIZE_MAX / 2);
    LOCKSTEP_TRY(events);
    if (events->empty()) {
        return fail(Errc::corrupt, id.value + ": a job without events");
    }
    auto job = start_job(events->front());
    for (std::size_t i = 1; job && i < events->size(); ++i) {
        if (const Status applied = apply(*job, (*events)[i]); !applied) {
            return fail(Errc::corrupt, id.value + ": event " + std::to_string((*events)[i].seq) +
                                           ": " + applied.error().message);
        }
    }
    return job;
}

bool was_handed_over(const Job& job) {
    const Attempt* attempt = job.attempt();
    return attempt != nullptr && attempt->finished_at == 0 &&
           (attempt->submissions > 0 || attempt->placed_at != 0 || !attempt->claims.empty() ||
            !attempt->scheduler_id.empty());
}

Result<std::size_t> end_foreign_jobs(Database& database, const std::string& why, UnixMillis now,
                                     const std::function<bool(const Job&)>& which) {
    const auto ids = JobRecords{database}.unfinished();
    auto seq = ids ? EventRecords{database}.last_seq() : fail(ids.error());
    LOCKSTEP_TRY(seq);
    std::size_t count = 0;
    for (const JobId& id : *ids) {
        auto job = fold_job(database, id);
        LOCKSTEP_TRY(job);
        if (!which(*job)) {
            continue;
        }
        auto events = end_of(*job, *seq, why, now);
        LOCKSTEP_TRY(events);
        Append append;
        append.events = std::move(*events);
        append.row = ended_row(*job, now);
        Status done = JobRecords{database}.append(append);
        done = done ? IdentityRecords{database}.add_foreign(id) : done;
        LOCKSTEP_TRY(done);
        ++count;
    }
    return count;
}

}  // namespace lockstep
