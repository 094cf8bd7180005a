#include "scheduler-integration/slurm/scheduler/turns.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {

bool SlurmTurns::take(SlurmTracked& tracked, bool reachable) {
    if (tracked.has_turn) {
        return true;
    }
    const bool first = line_.empty() || line_.front() == tracked.key;
    if (reachable && first && has_room()) {
        if (std::exchange(tracked.in_line, false)) {
            line_.pop_front();
        }
        tracked.has_turn = true;
        ++taken_;
        return true;
    }
    if (!std::exchange(tracked.in_line, true)) {
        line_.push_back(tracked.key);
    }
    return false;
}

void SlurmTurns::give_back(SlurmTracked& tracked) {
    if (std::exchange(tracked.has_turn, false)) {
        --taken_;
    }
    if (std::exchange(tracked.in_line, false)) {
        std::erase(line_, tracked.key);
    }
}

void SlurmTurns::free_hanging(const SlurmTrackedMap& all, SteadyTime now, std::uint64_t sending) {
    for (const auto& [key, tracked] : all) {
        const SlurmAttempt& attempt = tracked->attempt;
        const bool hangs = now - attempt.sending_since >= limits::kLongSubmission &&
                           sending < limits::kSubmissionsAtOnce;
        if (attempt.stage == SlurmAttempt::Stage::sending && tracked->has_turn &&
            (attempt.id != 0 || hangs)) {
            tracked->has_turn = false;
            --taken_;
        }
    }
}

SteadyTime SlurmTurns::next_send(SteadyTime now) {
    const auto gap = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(1 / options_.submissions_per_second));
    next_send_ = std::max(next_send_ + gap, now);
    return next_send_;
}

}  // namespace lockstep
