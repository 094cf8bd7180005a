#include "scheduler-integration/slurm/scheduler/cancels.hpp"

#include "job/base/log.hpp"

#include <utility>
#include <vector>

namespace lockstep {

Task<Status> SlurmCancels::end_unseen(SlurmTrackedPointer tracked) {
    const std::vector<std::int64_t> ids = std::exchange(tracked->attempt.unseen, {});
    Status all;
    for (const std::int64_t id : ids) {
        const Status done = co_await backend_.cancel(id, tracked->attempt.name_of(id));
        if (!done) {
            tracked->attempt.unseen.push_back(id);
            all = done;
        }
    }
    co_return all;
}

Task<void> SlurmCancels::end(SlurmTrackedPointer tracked, std::int64_t id) {
    const Status done = co_await backend_.cancel(id, tracked->attempt.name_of(id));
    if (!done) {
        log::warn("cannot cancel a Slurm job", {{"job", tracked->attempt.request.job.value},
                                                {"slurm_job", id},
                                                {"what", done.error().message}});
    } else if (id == tracked->attempt.id) {
        tracked->attempt.cancelled = true;
        pace_.soon();
    }
}

Task<void> SlurmCancels::abandon(SlurmTrackedPointer tracked) {
    SlurmAttempt& attempt = tracked->attempt;
    const std::int64_t id = attempt.id;
    Status done = co_await files_.write_abandoned(attempt.request, id);
    if (done && attempt.claimed == 0) {
        done = co_await backend_.cancel(id, attempt.name_of(id));
    }
    if (!done) {
        log::warn("cannot cancel a Slurm job that no agent has come from",
                  {{"job", attempt.request.job.value},
                   {"slurm_job", id},
                   {"what", done.error().message}});
    } else if (attempt.claimed == 0 && attempt.id == id) {
        attempt.abandoned = true;
        log::warn("no agent has come from a running Slurm job; it is cancelled",
                  {{"job", attempt.request.job.value}, {"name", attempt.name}, {"slurm_job", id}});
    }
}

}  // namespace lockstep
