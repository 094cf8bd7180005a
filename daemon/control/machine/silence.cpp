// Which agents of an attempt are not heard any more, and since when.
#include "daemon/control/machine/attempt_run.hpp"
#include "job/base/limits.hpp"

#include <algorithm>

namespace lockstep {

std::optional<AttemptRun::Time> AttemptRun::heard(std::int32_t slot) const {
    if (const auto link = links.find(slot); link != links.end()) {
        return link->second->last_heard;
    }
    const auto since = gone.find(slot);
    return since == gone.end() ? std::nullopt : std::optional{since->second};
}

bool AttemptRun::gone_for_good(std::int32_t slot, Time now) const {
    const auto since = gone.find(slot);
    return since != gone.end() && now - since->second >= limits::kAgentLost;
}

bool AttemptRun::may_still_come(const Attempt& attempt, std::int32_t slot, Time now) const {
    if (!attempt.claims.contains(slot)) {
        return false;
    }
    const auto last = heard(slot);
    return !last || (unheard.contains(slot) && now - *last < limits::kAgentSilence);
}

bool AttemptRun::somebody_may_still_come(const Job& job, Time now) const {
    const Generation* live = job.live_generation();
    for (std::int32_t node = 0; live != nullptr && node < live->nodes; ++node) {
        const std::int32_t slot = live->slot_of(node);
        if (!node_ended(job, node) && !job.attempt()->lost.contains(slot) &&
            may_still_come(*job.attempt(), slot, now)) {
            return true;
        }
    }
    return false;
}

void AttemptRun::restart_silence_timers(Time now) {
    for (auto& [slot, since] : gone) {
        since = now;
    }
    for (const auto& [slot, link] : links) {
        link->last_heard = now;
    }
    generation.hang_watch.reset();
}

std::int32_t AttemptRun::spares_at_hand(Time now) const {
    return static_cast<std::int32_t>(
        std::count_if(links.begin(), links.end(), [&](const auto& entry) {
            return rendezvous.is_spare(entry.first) && preflight.passed(entry.first) &&
                   now - entry.second->last_heard < limits::kAgentSilence / 2;
        }));
}

std::int32_t AttemptRun::nodes_to_spare(const Job& job) {
    const Generation& live = *job.live_generation();
    std::int32_t left = -job.spec.resources.least_nodes();
    for (std::int32_t node = 0; node < live.nodes; ++node) {
        left += job.attempt()->lost.contains(live.slot_of(node)) ? 0 : 1;
    }
    return left;
}

std::vector<std::int32_t> AttemptRun::more_nodes(const Job& job, Time now) const {
    std::vector<std::int32_t> out;
    for (const auto& [slot, link] : links) {
        if (rendezvous.is_spare(slot) && preflight.passed(slot) &&
            !job.attempt()->lost.contains(slot) && now - link->since >= limits::kReturnSettle &&
            now - link->last_heard < limits::kAgentSilence / 2) {
            out.push_back(slot);
        }
    }
    return out;
}

bool AttemptRun::somebody_silent_since(const Job& job, Time time) const {
    const Generation* live = job.live_generation();
    for (std::int32_t node = 0; live != nullptr && node < live->nodes; ++node) {
        const std::int32_t slot = live->slot_of(node);
        const auto link = links.find(slot);
        const bool silent = link == links.end() || link->second->last_heard < time;
        if (silent && !job.attempt()->lost.contains(slot) && !node_ended(job, node)) {
            return true;
        }
    }
    return false;
}

// A scheduler may end all of a job that lost a node: those that leave then are its victims, and the
// silent one, which says nothing, is the node that was lost.
bool AttemptRun::silent_before(const Job& job, Time time, Time now) const {
    const Attempt& attempt = *job.attempt();
    const Generation* live = job.live_generation();
    for (const auto& [slot, claim] : attempt.claims) {
        const auto last = heard(slot);
        const std::int32_t node = live == nullptr ? slot : live->node_rank_of(slot);
        if (last && *last <= time && now - *last >= limits::kAgentSilence && !left.contains(slot) &&
            !attempt.lost.contains(slot) && node >= 0 &&
            (live == nullptr || !node_ended(job, node))) {
            return true;
        }
    }
    return false;
}

std::optional<std::int32_t> AttemptRun::longest_silent(const Attempt& attempt, Time now) const {
    std::optional<std::int32_t> out;
    Time earliest = Time::max();
    for (const auto& [slot, claim] : attempt.claims) {
        const auto last = heard(slot);
        if (last && !left.contains(slot) && now - *last >= limits::kAgentSilence &&
            *last < earliest) {
            out = slot;
            earliest = *last;
        }
    }
    return out;
}

std::optional<AttemptRun::Time> AttemptRun::last_sign(const Attempt& attempt,
                                                      const std::string& node) const {
    for (const auto& [slot, claim] : attempt.claims) {
        if (claim.node == node) {
            const auto said = left.find(slot);
            return said != left.end() ? std::optional{said->second.at} : heard(slot);
        }
    }
    return std::nullopt;
}

}  // namespace lockstep
