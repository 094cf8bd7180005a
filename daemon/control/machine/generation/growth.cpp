#include "daemon/control/machine/generation/growth.hpp"

#include "daemon/control/machine/generation/size_words.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

bool waits_for_more(const Draft& draft, const AttemptRun& run,
                    const std::vector<std::int32_t>& members) {
    const Job& job = draft.job();
    if (static_cast<std::int32_t>(members.size()) == job.spec.resources.nodes) {
        return false;
    }
    const auto now = draft.at.steady;
    if (job.generation() == nullptr) {
        const bool all = run.rendezvous.everybody_joined() && run.preflight.settled();
        return !all && run.joined_at && now - *run.joined_at < limits::kLateNodes;
    }
    return std::any_of(run.links.begin(), run.links.end(), [&](const auto& entry) {
        const bool member = std::find(members.begin(), members.end(), entry.first) != members.end();
        return !member && now - entry.second->since < limits::kReturnPatience;
    });
}

void look_at_growth(Draft& draft, AttemptRun& run, SaveRound& saving) {
    const Job& job = draft.job();
    const Generation* live = job.live_generation();
    const Resources& resources = job.spec.resources;
    const bool runs = resources.is_elastic() && live != nullptr && live->running_at != 0 &&
                      live->nodes < resources.nodes && !live->first_failure &&
                      live->exited_count == 0 && job.restart_requested_by.empty() &&
                      job.cancel_requested_at == 0 && !run.stopping && !run.generation.abort_sent;
    const std::vector<std::int32_t> more =
        runs ? run.more_nodes(job, draft.at.steady) : std::vector<std::int32_t>{};
    if (more.empty()) {
        run.generation.growth.reset();
        return;
    }
    const auto now = draft.at.steady;
    const std::chrono::seconds patience{
        job.spec.recovery.grow_after_seconds.value_or(kGrowAfterSeconds)};
    const std::string names = node_names(*job.attempt(), more);
    if (!run.generation.growth) {
        run.generation.growth = GrowthWait{now, run.newest_checkpoint(job)};
        log::info(
            "more nodes are there; the next checkpoint is waited for",
            {{"job", draft.before().id.value}, {"nodes", names}, {"seconds", patience.count()}});
        if (patience.count() > 0) {
            SaveInput save;
            save.by = "lockstep";
            save.done = [id = draft.before().id.value](const Status& asked) {
                if (!asked) {
                    log::info("the ranks cannot be asked for a checkpoint",
                              {{"job", id}, {"why", asked.error().message}});
                }
            };
            saving.want(draft, run, save);
        }
    }
    if (run.newest_checkpoint(job) <= run.generation.growth->checkpoint &&
        now - run.generation.growth->since < patience) {
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
