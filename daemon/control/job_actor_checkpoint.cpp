// The ranks are asked for a checkpoint by a signal. Most programs die of it, so the agents are
// asked first whether every rank catches it; if one does not, nobody gets it and the caller hears
// why. A job that names the signal has said that its ranks know what to do with it.
#include "daemon/control/job_actor.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {

void JobActor::take(Draft& draft, SaveInput& input) {
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
        order_save(draft, input.by);
        draft.answers.push_back(input.done);
        return;
    }
    if (saving_ && saving_->generation == live->number) {
        saving_->done.push_back(input.done);  // what is under way answers this, too
        return;
    }
    ask_who_can_save(draft.job(), input);
    look_at_saving(draft);
}

void JobActor::ask_who_can_save(const Job& job, SaveInput& input) {
    end_saving(fail(Errc::conflict, "its ranks were started anew"));
    const Generation& live = *job.live_generation();
    Saving saving{};
    saving.generation = live.number;
    saving.round = ++saving_round_;
    saving.by = input.by;
    saving.since = context_.clock.steady();
    saving.done.push_back(input.done);
    for (std::int32_t node = 0; node < live.nodes; ++node) {
        const std::int32_t slot = live.slot_of(node);
        saving.awaited.insert(slot);
        if (const auto link = run_.links.find(slot); link != run_.links.end()) {
            link->second->send(wire::AskSave{saving.generation, saving.round});
        }
    }
    saving_ = std::move(saving);
}

void JobActor::can_save(Draft& draft, const std::shared_ptr<AgentLink>& link,
                        const wire::CanSave& answer) {
    if (!saving_ || answer.round != saving_->round || answer.generation != saving_->generation ||
        saving_->awaited.erase(link->node_rank) == 0) {
        return;
    }
    if (answer.rank >= 0 && saving_->problem.empty()) {
        saving_->problem = "rank " + std::to_string(answer.rank) + " on " + link->node + ": " +
                           printable(answer.problem).substr(0, limits::kTextBytes);
    }
    look_at_saving(draft);
}

bool JobActor::saving_is_late() const {
    return saving_ && context_.clock.steady() - saving_->since >= limits::kSaveAnswers;
}

// Everybody has answered, or somebody has not in time.
void JobActor::look_at_saving(Draft& draft) {
    if (!saving_) {
        return;
    }
    const Generation* live = draft.job().live_generation();
    if (live == nullptr || live->number != saving_->generation || live->exited_count > 0) {
        end_saving(fail(Errc::conflict, "ranks of it have ended meanwhile"));
    } else if (!saving_->problem.empty()) {
        end_saving(fail(Errc::conflict,
                        saving_->problem +
                            "; it would end the rank, so no rank got it. Catch it "
                            "(lockstep.checkpoint_requested() does), or name checkpoint.signal in "
                            "the specification"));
    } else if (saving_->awaited.empty()) {
        order_save(draft, saving_->by);
        for (auto& done : saving_->done) {
            draft.answers.push_back(std::move(done));
        }
        saving_.reset();
    } else if (saving_is_late()) {
        const std::int32_t node = live->node_rank_of(*saving_->awaited.begin());
        const NodeClaim* claim = draft.job().claim_of_node(node);
        end_saving(fail(Errc::conflict,
                        "the agent of node " +
                            (claim != nullptr ? claim->node : std::to_string(node)) +
                            " does not answer, so it is not known whether its ranks catch the "
                            "signal; no rank got it"));
    }
}

void JobActor::end_saving(const Status& status) {
    if (auto saving = std::exchange(saving_, std::nullopt)) {
        for (const auto& done : saving->done) {
            done(status);
        }
    }
}

// Who asked is on disk before the signal leaves: whatever the ranks do of it, it is no riddle.
void JobActor::order_save(Draft& draft, const std::string& by) {
    event::CheckpointRequested requested;
    requested.attempt = draft.job().attempt()->number;
    requested.generation = draft.job().live_generation()->number;
    requested.by = by;
    requested.signal = draft.job().spec.checkpoint.signal;
    const std::int32_t generation = requested.generation;
    add(draft, std::move(requested));
    log::info("the ranks are asked for a checkpoint", {{"job", job_.id.value}, {"by", by}});
    draft.effects.push_back([this, generation] {
        for (const auto& [slot, link] : run_.links) {
            link->send(wire::Save{generation});
        }
    });
}

// The newest checkpoint becomes an event: at once, or, of a generation that has many, once in a
// while and with its end (`last`). Ranks find theirs by themselves; what a crash of the daemon may
// cost is what is said of the last minute's.
void JobActor::tell_checkpoint(Draft& draft, bool last) {
    const Generation* live = draft.job().live_generation();
    if (!run_.checkpoint || live == nullptr || run_.checkpoint->generation != live->number ||
        run_.checkpoint->attempt != draft.job().attempt()->number ||
        run_.checkpoint->step <= draft.job().checkpoint_step) {
        return;
    }
    const std::chrono::milliseconds since{context_.clock.wall() - draft.job().checkpoint_at};
    const bool now = last || live->checkpoints < limits::kCheckpointEvents ||
                     since >= limits::kCheckpointPause || since < std::chrono::milliseconds{0};
    if (now) {
        event::CheckpointSaved saved = *run_.checkpoint;
        add(draft, std::move(saved));
    }
}

void JobActor::save_asked(Draft& draft, const std::shared_ptr<AgentLink>& link,
                          const wire::SaveAsked& asked) {
    const Job& job = draft.job();
    if (current(*link, asked.generation)) {
        const bool first = !std::exchange(run_.generation.time_limit_told, true);
        const bool deaf = asked.rank >= 0 && asked.rank < job.world_size();
        if (first || (deaf && run_.generation.deaf_told < limits::kDeafRankEvents)) {
            event::CheckpointRequested requested;
            requested.attempt = job.attempt()->number;
            requested.generation = asked.generation;
            requested.by = "time limit";
            requested.signal = job.spec.checkpoint.signal;
            if (deaf) {
                ++run_.generation.deaf_told;
                requested.rank = asked.rank;
                requested.node = link->node;
                requested.message = "rank " + std::to_string(asked.rank) + " did not get it: " +
                                    printable(asked.problem).substr(0, limits::kTextBytes);
            }
            add(draft, std::move(requested));
        }
    }
    draft.heard.emplace_back(link, asked.event);
}

}  // namespace lockstep
