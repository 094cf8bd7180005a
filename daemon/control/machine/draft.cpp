#include "daemon/control/machine/draft.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>

namespace lockstep {

void fence(Effects& effects, const Job& job, const AgentPtr& link, std::string why) {
    log::warn("agent fenced", {{"job", job.id.value}, {"node", link->node}, {"why", why}});
    wire::Fenced fenced;
    fenced.generation = job.generation() != nullptr ? job.generation()->number : 0;
    fenced.message = std::move(why);
    effects.send(link, std::move(fenced));
    effects.add(effect::Close{link, "fenced"});
}

Job& Draft::own() {
    if (!own_) {
        own_ = std::make_unique<Job>(*now_);
    }
    return *own_;
}

bool Draft::add(EventData data) {
    Event event;
    event.seq = now_->last_seq;  // the real number is given at the append
    event.job = now_->id;
    event.time = at.wall;
    event.data = std::move(data);
    if (const auto promise = broken_by(job(), event.data)) {
        Job tried = job();          // a copy
        if (apply(tried, event)) {  // else it is stale, and nothing is wrong
            broken.emplace_back(*promise, std::move(event));
        }
        return false;
    }
    if (const auto applied = apply(own(), event); !applied) {
        log::debug("event has no place", {{"job", now_->id.value},
                                          {"event", to_string(event.kind())},
                                          {"why", applied.error().message}});
        return false;
    }
    events.push_back(std::move(event));
    return true;
}

void Draft::warn(const std::string& message, const std::string& node) {
    const auto& known = job().warnings;
    if (message.empty() || known.size() >= limits::kJobWarnings ||
        std::find(known.begin(), known.end(), message) != known.end()) {
        return;
    }
    event::WarningGiven warning;
    warning.attempt = job().attempt() != nullptr ? job().attempt()->number : 0;
    if (const Generation* live = job().live_generation()) {
        warning.generation = live->number;
    }
    warning.node = node;
    warning.message = message;
    if (add(std::move(warning))) {
        log::warn("a job has a warning", {{"job", now_->id.value}, {"what", message}});
    }
}

void Draft::give_up(std::int32_t slot, bool may_return) {
    after.emplace_back(after::GiveUp{slot, may_return});
}

void Draft::found_once(std::size_t from) {
    std::for_each(events.begin() + static_cast<std::ptrdiff_t>(from), events.end(),
                  [this](const Event& one) { once.push_back(one.data); });
}

void Draft::find_again(EventData data) {
    const auto* fault = std::get_if<event::FaultSeen>(&data);
    const std::int32_t slot = fault == nullptr ? -1 : fault->slot;
    const bool may_return = fault != nullptr && fault->may_return;
    const std::size_t from = events.size();
    if (add(std::move(data))) {
        found_once(from);
        if (slot >= 0) {
            give_up(slot, may_return);
        }
    }
}

void Draft::put_off(std::size_t follows) {
    events.clear();
    once.clear();
    own_.reset();
    after.erase(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(follows));
}

void Draft::fence(const AgentPtr& link, std::string why) {
    lockstep::fence(at_once, *now_, link, std::move(why));
}

}  // namespace lockstep
