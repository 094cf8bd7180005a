// Job: what is asked of it. What its events do is in job.cpp.
#include "job/base/limits.hpp"
#include "job/model/job.hpp"

#include <algorithm>

namespace lockstep {

const Generation* Job::generation() const {
    if (attempts.empty() || attempts.back().generations.empty()) {
        return nullptr;
    }
    return &attempts.back().generations.back();
}

const Generation* Job::live_generation() const {
    const Generation* newest = generation();
    return newest != nullptr && newest->open() ? newest : nullptr;
}

std::int32_t Job::nodes() const {
    const Generation* newest = generation();
    return newest == nullptr ? spec.resources.nodes : newest->nodes;
}

bool Attempt::may_return(std::int32_t slot) const {
    const auto before = returns.find(slot);
    return absent.contains(slot) && (before == returns.end() || before->second < limits::kReturns);
}

const NodeClaim* Job::claim_of_node(std::int32_t node_rank) const {
    const Generation* newest = generation();
    if (attempt() == nullptr) {
        return nullptr;
    }
    const auto found =
        attempt()->claims.find(newest == nullptr ? node_rank : newest->slot_of(node_rank));
    return found == attempt()->claims.end() ? nullptr : &found->second;
}

std::int32_t Generation::slot_of(std::int32_t node_rank) const {
    if (slots.empty()) {
        return node_rank;
    }
    const auto index = static_cast<std::size_t>(node_rank);
    return node_rank >= 0 && index < slots.size() ? slots[index] : -1;
}

std::int32_t Generation::node_rank_of(std::int32_t slot) const {
    if (slots.empty()) {
        return slot;
    }
    const auto found = std::find(slots.begin(), slots.end(), slot);
    return found == slots.end() ? -1 : static_cast<std::int32_t>(found - slots.begin());
}

}  // namespace lockstep
