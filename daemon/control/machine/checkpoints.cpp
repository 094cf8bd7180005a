#include "daemon/control/machine/checkpoints.hpp"

#include "daemon/control/machine/rank_owner.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

void tell_checkpoint(Draft& draft, const AttemptRun& run, bool last) {
    const Generation* live = draft.job().live_generation();
    if (!run.checkpoint || live == nullptr || run.checkpoint->generation != live->number ||
        run.checkpoint->attempt != draft.job().attempt()->number ||
        run.checkpoint->step <= draft.job().checkpoint_step) {
        return;
    }
    const std::chrono::milliseconds since{draft.at.wall - draft.job().checkpoint_at};
    const bool now = last || live->checkpoints < limits::kCheckpointEvents ||
                     since >= limits::kCheckpointPause || since < std::chrono::milliseconds{0};
    if (now) {
        event::CheckpointSaved saved = *run.checkpoint;
        draft.add(std::move(saved));
    }
}

void save_asked(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                const wire::SaveAsked& asked) {
    const Job& job = draft.job();
    if (is_current(draft.before(), *link, asked.generation)) {
        const auto told = [&](bool only_deaf) {
            return std::count_if(draft.after.begin(), draft.after.end(), [&](const After& one) {
                const auto* event = std::get_if<after::TimeLimitTold>(&one);
                return event != nullptr && (event->deaf || !only_deaf);
            });
        };
        const bool first = !run.generation.time_limit_told && told(false) == 0;
        const std::int32_t rank = own_rank(job, *link, asked.generation, asked.rank);
        const bool deaf = rank >= 0;
        if (first || (deaf && run.generation.deaf_told + told(true) < limits::kDeafRankEvents)) {
            event::CheckpointRequested requested;
            requested.attempt = job.attempt()->number;
            requested.generation = asked.generation;
            requested.by = "time limit";
            requested.signal = job.spec.checkpoint.signal;
            if (deaf) {
                requested.rank = rank;
                requested.node = link->node;
                requested.message = "rank " + std::to_string(rank) + " did not get it: " +
                                    printable(asked.problem).substr(0, limits::kTextBytes);
            }
            draft.add(std::move(requested));
            draft.after.emplace_back(after::TimeLimitTold{deaf});
        }
    }
    draft.hear(link, asked.event);
}

void time_limit_told(AttemptRun& run, bool deaf) {
    run.generation.time_limit_told = true;
    run.generation.deaf_told += deaf ? 1 : 0;
}

void checkpoint_saved(Draft& draft, AttemptRun& run, const AgentPtr& link,
                      const wire::CheckpointSaved& saved) {
    if (saved.step > draft.job().checkpoint_step &&
        is_current(draft.before(), *link, saved.generation) &&
        (!run.checkpoint || saved.step >= run.checkpoint->step)) {
        run.checkpoint.emplace();
        run.checkpoint->attempt = draft.job().attempt()->number;
        run.checkpoint->generation = saved.generation;
        run.checkpoint->step = saved.step;
        run.checkpoint->path = printable(saved.path).substr(0, limits::kPathBytes);
        tell_checkpoint(draft, run, false);
    }
    draft.hear(link, saved.event);
}

}  // namespace lockstep
