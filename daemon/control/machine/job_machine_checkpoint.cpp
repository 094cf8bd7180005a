// Checkpoints: those that were written, and those that the ranks are asked for (save_round.hpp).
#include "daemon/control/machine/command_once.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {
namespace {

// Who asked is on disk before the signal leaves: whatever the ranks do of it, it is no riddle.
void order_save(Draft& draft, const std::vector<SaveRound::Asker>& askers) {
    const std::int32_t generation = draft.job().live_generation()->number;
    draft.after.emplace_back(after::OrderSave{generation});
    for (const SaveRound::Asker& asker : askers) {
        event::CheckpointRequested requested;
        requested.attempt = draft.job().attempt()->number;
        requested.generation = generation;
        requested.by = asker.by;
        requested.signal = draft.job().spec.checkpoint.signal;
        requested.key = asker.key;
        draft.add(std::move(requested));
    }
    log::info("the ranks are asked for a checkpoint",
              {{"job", draft.before().id.value}, {"by", askers.front().by}});
}

}  // namespace

// A job that names the signal has said that its ranks know what to do with it.
void JobMachine::hear(Draft& draft, SaveInput& input) {
    if (answer_known(draft, input, Command::checkpoint)) {
        return;
    }
    const Generation* live = draft.job().live_generation();
    if (live == nullptr || draft.job().state != JobState::running ||
        draft.job().cancel_requested_at != 0) {
        draft.answers.push_back(
            [done = input.done, state = draft.job().state](const Status& stored) {
                done(!stored ? stored
                             : fail(Errc::conflict,
                                    "no rank runs that could write a checkpoint: "
                                    "the job is " +
                                        std::string{to_string(state)}));
            });
        return;
    }
    if (draft.job().spec.checkpoint.signal_named) {
        order_save(draft, {SaveRound::Asker{input.by, input.key}});
        draft.answers.push_back(input.done);
        return;
    }
    save_.ask(draft.at_once, draft.job(), run_, input, draft.at.steady);
    look_at_saving(draft);
}

void JobMachine::can_save(Draft& draft, const AgentPtr& link, const wire::CanSave& answer) {
    save_.answer(*link, answer);
    look_at_saving(draft);
}

void JobMachine::look_at_saving(Draft& draft) {
    if (auto order = save_.look(draft.at_once, draft.job(), draft.at.steady)) {
        order_save(draft, order->askers);
        for (auto& done : order->done) {
            draft.answers.push_back(std::move(done));
        }
    }
}

// The newest checkpoint becomes an event: at once, or, of a generation that has many, once in a
// while and with its end (`last`). Ranks find theirs by themselves; what a crash of the daemon may
// cost is what is said of the last minute's.
void JobMachine::tell_checkpoint(Draft& draft, bool last) {
    const Generation* live = draft.job().live_generation();
    if (!run_.checkpoint || live == nullptr || run_.checkpoint->generation != live->number ||
        run_.checkpoint->attempt != draft.job().attempt()->number ||
        run_.checkpoint->step <= draft.job().checkpoint_step) {
        return;
    }
    const std::chrono::milliseconds since{draft.at.wall - draft.job().checkpoint_at};
    const bool now = last || live->checkpoints < limits::kCheckpointEvents ||
                     since >= limits::kCheckpointPause || since < std::chrono::milliseconds{0};
    if (now) {
        event::CheckpointSaved saved = *run_.checkpoint;
        draft.add(std::move(saved));
    }
}

void JobMachine::save_asked(Draft& draft, const AgentPtr& link, const wire::SaveAsked& asked) {
    const Job& job = draft.job();
    if (is_current(job_, *link, asked.generation)) {
        const auto told = [&](bool only_deaf) {
            return std::count_if(draft.after.begin(), draft.after.end(), [&](const After& one) {
                const auto* event = std::get_if<after::TimeLimitTold>(&one);
                return event != nullptr && (event->deaf || !only_deaf);
            });
        };
        const bool first = !run_.generation.time_limit_told && told(false) == 0;
        const bool deaf = asked.rank >= 0 && asked.rank < job.world_size();
        if (first || (deaf && run_.generation.deaf_told + told(true) < limits::kDeafRankEvents)) {
            event::CheckpointRequested requested;
            requested.attempt = job.attempt()->number;
            requested.generation = asked.generation;
            requested.by = "time limit";
            requested.signal = job.spec.checkpoint.signal;
            if (deaf) {
                requested.rank = asked.rank;
                requested.node = link->node;
                requested.message = "rank " + std::to_string(asked.rank) + " did not get it: " +
                                    printable(asked.problem).substr(0, limits::kTextBytes);
            }
            draft.add(std::move(requested));
            draft.after.emplace_back(after::TimeLimitTold{deaf});
        }
    }
    draft.hear(link, asked.event);
}

void JobMachine::checkpoint(Draft& draft, const AgentPtr& link,
                            const wire::CheckpointSaved& saved) {
    if (saved.step > draft.job().checkpoint_step && is_current(job_, *link, saved.generation) &&
        (!run_.checkpoint || saved.step >= run_.checkpoint->step)) {
        run_.checkpoint.emplace();
        run_.checkpoint->attempt = draft.job().attempt()->number;
        run_.checkpoint->generation = saved.generation;
        run_.checkpoint->step = saved.step;
        run_.checkpoint->path = printable(saved.path).substr(0, limits::kPathBytes);
        tell_checkpoint(draft, false);
    }
    draft.hear(link, saved.event);
}

}  // namespace lockstep
