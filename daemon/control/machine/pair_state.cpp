#include "daemon/control/machine/pair_state.hpp"

#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {

const PairState::Groups& PairState::start(Groups groups, Time now) {
    ++round_;
    began_ = now;
    for (const auto& group : groups) {
        awaited_.insert(group.begin(), group.end());
    }
    rounds_.push_back({std::move(groups), {}});
    return rounds_.back().groups;
}

const PairState::Groups& PairState::begin(std::map<std::int32_t, std::string> names, Time now) {
    names_ = std::move(names);
    std::vector<std::int32_t> slots;
    slots.reserve(names_.size());
    for (const auto& [slot, name] : names_) {
        slots.push_back(slot);
    }
    return start(first_pairs(std::move(slots)), now);
}

void PairState::tested(std::int32_t slot, std::int32_t round, PairOutcome outcome) {
    if (!done_ && round_ > 0 && round == this->round() && awaited_.erase(slot) != 0) {
        current().outcomes[slot] = std::move(outcome);
    }
}

void PairState::gone(std::int32_t slot) {
    PairOutcome away{-1, "its agent was away", false};
    away.nccl.blames = NcclBlame::self;
    tested(slot, round(), std::move(away));
}

bool PairState::over(Time now) const {
    return awaited_.empty() ||
           now - began_ >= (kind_ == Kind::nccl ? limits::kNcclPatience : limits::kPairPatience);
}

const PairState::Groups* PairState::next(Time now) {
    if (round_ != 1 || !over(now)) {
        return nullptr;
    }
    awaited_.clear();
    return &start(second_pairs(current()), now);
}

std::optional<std::vector<PreflightFinding>> PairState::judge(Time now) {
    if (done_ || round_ != 2 || !over(now)) {
        return std::nullopt;
    }
    done_ = true;
    return kind_ == Kind::nccl ? judge_nccl(names_, rounds_[0], rounds_[1])
                               : judge_pairs(names_, rounds_[0], rounds_[1]);
}

}  // namespace lockstep
