// Elastic jobs (resources.min_nodes): generations of fewer nodes than are wanted, and when the
// ranks are started again because there are more.
#include "daemon/control/machine/generation/size_words.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

// Fewer nodes than are wanted could begin; whether more are on their way.
bool JobMachine::waits_for_more(const Draft& draft,
                                const std::vector<std::int32_t>& members) const {
    const Job& job = draft.job();
    if (static_cast<std::int32_t>(members.size()) == job.spec.resources.nodes) {
        return false;
    }
    const auto now = draft.at.steady;
    if (job.generation() == nullptr) {
        const bool all = run_.rendezvous.everybody_joined() && run_.preflight.settled();
        return !all && run_.joined_at && now - *run_.joined_at < limits::kLateNodes;
    }
    return std::any_of(run_.links.begin(), run_.links.end(), [&](const auto& entry) {
        const bool member = std::find(members.begin(), members.end(), entry.first) != members.end();
        return !member && now - entry.second->since < limits::kReturnPatience;
    });
}

// A larger generation costs a restart, so it comes when that loses the least: right after a
// checkpoint, which the ranks are asked for if all of them catch the signal. Some say nothing of
// their checkpoints; after grow_after_seconds nobody waits any more. A generation that has begun to
// end is left alone.
void JobMachine::look_at_growth(Draft& draft) {
    const Job& job = draft.job();
    const Generation* live = job.live_generation();
    const Resources& resources = job.spec.resources;
    const bool runs = resources.is_elastic() && live != nullptr && live->running_at != 0 &&
                      live->nodes < resources.nodes && !live->first_failure &&
                      live->exited_count == 0 && job.restart_requested_by.empty() &&
                      job.cancel_requested_at == 0 && !run_.stopping && !run_.generation.abort_sent;
    const std::vector<std::int32_t> more =
        runs ? run_.more_nodes(job, draft.at.steady) : std::vector<std::int32_t>{};
    if (more.empty()) {
        run_.generation.growth.reset();
        return;
    }
    const auto now = draft.at.steady;
    const std::chrono::seconds patience{
        job.spec.recovery.grow_after_seconds.value_or(kGrowAfterSeconds)};
    const std::string names = node_names(*job.attempt(), more);
    if (!run_.generation.growth) {
        run_.generation.growth = GrowthWait{now, run_.newest_checkpoint(job)};
        log::info("more nodes are there; the next checkpoint is waited for",
                  {{"job", job_.id.value}, {"nodes", names}, {"seconds", patience.count()}});
        if (patience.count() > 0) {
            SaveInput save;
            save.by = "lockstep";
            save.done = [id = job_.id.value](const Status& asked) {
                if (!asked) {
                    log::info("the ranks cannot be asked for a checkpoint",
                              {{"job", id}, {"why", asked.error().message}});
                }
            };
            save_.want(draft, run_, save);
        }
    }
    if (run_.newest_checkpoint(job) <= run_.generation.growth->checkpoint &&
        now - run_.generation.growth->since < patience) {
        return;
    }
    const auto count =
        std::min(live->nodes + static_cast<std::int32_t>(more.size()), resources.nodes);
    event::RestartRequested grow;
    grow.attempt = job.attempt()->number;
    grow.generation = live->number;
    grow.by = "lockstep";
    grow.reason = growth_words(job, more, count);
    draft.add(std::move(grow));
}

}  // namespace lockstep
