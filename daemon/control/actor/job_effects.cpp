#include "daemon/control/actor/job_effects.hpp"

#include <utility>

namespace lockstep {

AgentLink& link_of(const AgentPtr& agent) {
    return static_cast<AgentLink&>(*agent);  // a job has no other agents here
}

void JobEffects::perform(Effects effects) {
    for (Effect& effect : effects.take()) {
        std::visit([this](auto& one) { perform(one); }, effect);
    }
}

void JobEffects::perform(effect::Send& one) {
    link_of(one.to).send(one.message);
}

void JobEffects::perform(effect::SendShared& one) {
    link_of(one.to).send_encoded(std::move(one.text));
}

void JobEffects::perform(effect::Greet& one) {
    link_of(one.to).send_text(welcome_.text(*one.to, over_));
}

void JobEffects::perform(effect::Close& one) {
    link_of(one.link).close(std::move(one.reason));
}

void JobEffects::perform(effect::Acknowledge& one) {
    link_of(one.to).acknowledge_event(one.event);
}

void JobEffects::perform(effect::Answer& one) {
    one.done(one.status);
}

void JobEffects::perform(effect::Claimed& one) {
    context_.scheduler.claimed(machine_.job().id, one.attempt, one.allocation);
}

void JobEffects::perform(effect::ExpectEnd& one) {
    context_.scheduler.expect_end(machine_.job().id, one.attempt, work_done(machine_.job()));
}

void JobEffects::perform(effect::AttemptOver& one) {
    context_.scheduler.over(machine_.job().id, one.attempt);
}

void JobEffects::perform(effect::LookAgain&) {
    inputs_.emplace_back(LookInput{});
}

void JobEffects::perform(effect::HearAgain& one) {
    inputs_.emplace_front(std::move(one.input));
}

}  // namespace lockstep
