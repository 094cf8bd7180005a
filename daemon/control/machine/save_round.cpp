#include "daemon/control/machine/save_round.hpp"

#include "daemon/control/machine/command_once.hpp"
#include "daemon/control/machine/rank_owner.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

// Who asked is on disk before the signal leaves: whatever the ranks do of it, it is no riddle.
void SaveRound::order(Draft& draft, const std::vector<Asker>& askers) {
    const std::int32_t generation = draft.job().live_generation()->number;
    draft.after.emplace_back(after::OrderSave{generation});
    for (const Asker& asker : askers) {
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

void SaveRound::want(Draft& draft, const AttemptRun& run, const SaveInput& input) {
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
        order(draft, {Asker{input.by, input.key}});
        draft.answers.push_back(input.done);
        return;
    }
    ask(draft.at_once, draft.job(), run, input, draft.at.steady);
    look(draft);
}

void SaveRound::look(Draft& draft) {
    if (auto follows = outcome(draft.at_once, draft.job(), draft.at.steady)) {
        order(draft, follows->askers);
        for (auto& done : follows->done) {
            draft.answers.push_back(std::move(done));
        }
    }
}

bool SaveRound::join(Asked& joined, const SaveInput& input) const {
    std::vector<Asker>& askers = joined.askers;
    if (!input.key.empty()) {
        const bool again = holds(input.by, input.key);
        if (!again && askers.size() > limits::kCommandKeysJoining) {
            return false;
        }
        if (again && input.repeated) {
            *input.repeated = true;
        } else if (!again) {
            askers.push_back({input.by, input.key});
        }
    }
    joined.done.push_back(input.done);
    return true;
}

void SaveRound::ask(Effects& out, const Job& job, const AttemptRun& run, const SaveInput& input,
                    Time now) {
    const Generation& live = *job.live_generation();
    if (asked_ && asked_->generation == live.number) {
        if (!join(*asked_, input)) {
            out.add(effect::Answer{input.done, fail(too_many_keys())});
        }
        return;
    }
    end(out, fail(Errc::conflict, "its ranks were started anew"));
    Asked asked{};
    asked.generation = live.number;
    asked.round = ++round_;
    asked.askers.push_back({input.by, input.key});
    asked.since = now;
    asked.done.push_back(input.done);
    for (std::int32_t node = 0; node < live.nodes; ++node) {
        const std::int32_t slot = live.slot_of(node);
        asked.awaited.insert(slot);
        if (const auto link = run.links.find(slot); link != run.links.end()) {
            out.send(link->second, wire::AskSave{asked.generation, asked.round});
        }
    }
    asked_ = std::move(asked);
}

bool SaveRound::holds(const std::string& user, const std::string& key) const {
    return asked_ && !key.empty() &&
           std::any_of(asked_->askers.begin(), asked_->askers.end(),
                       [&](const Asker& one) { return one.by == user && one.key == key; });
}

void SaveRound::answer(Draft& draft, const Agent& link, const wire::CanSave& answer) {
    const bool counts = asked_ && answer.round == asked_->round &&
                        answer.generation == asked_->generation &&
                        asked_->awaited.erase(link.node_rank) != 0;
    if (counts && answer.rank >= 0 && asked_->problem.empty()) {
        // Of another node's rank it cannot know, but it has not said that each of its own catches
        // it.
        const std::int32_t rank = own_rank(draft.job(), link, answer.generation, answer.rank);
        asked_->problem = (rank >= 0 ? "rank " + std::to_string(rank) : "a rank") + " on " +
                          link.node + ": " +
                          printable(answer.problem).substr(0, limits::kTextBytes);
    }
    look(draft);
}

std::optional<SaveRound::Order> SaveRound::outcome(Effects& out, const Job& job, Time now) {
    if (!asked_) {
        return std::nullopt;
    }
    const Generation* live = job.live_generation();
    if (live == nullptr || live->number != asked_->generation || live->exited_count > 0) {
        end(out, fail(Errc::conflict, "ranks of it have ended meanwhile"));
    } else if (!asked_->problem.empty()) {
        end(out, fail(Errc::conflict,
                      asked_->problem +
                          "; it would end the rank, so no rank got it. Catch it "
                          "(lockstep.checkpoint_requested() does), or name checkpoint.signal in "
                          "the specification"));
    } else if (asked_->awaited.empty()) {
        Order follows{std::move(asked_->askers), std::move(asked_->done)};
        asked_.reset();
        return follows;
    } else if (now - asked_->since >= limits::kSaveAnswers) {
        const std::int32_t node = live->node_rank_of(*asked_->awaited.begin());
        const NodeClaim* claim = job.claim_of_node(node);
        end(out,
            fail(Errc::conflict,
                 "the agent of node " + (claim != nullptr ? claim->node : std::to_string(node)) +
                     " does not answer, so it is not known whether its ranks catch the "
                     "signal; no rank got it"));
    }
    return std::nullopt;
}

void SaveRound::send(Effects& out, const AttemptRun& run, std::int32_t generation) {
    for (const auto& [slot, link] : run.links) {
        out.send(link, wire::Save{generation});
    }
}

void SaveRound::end(Effects& out, const Status& status) {
    if (auto asked = std::exchange(asked_, std::nullopt)) {
        for (auto& done : asked->done) {
            out.add(effect::Answer{std::move(done), status});
        }
    }
}

}  // namespace lockstep
