#include "daemon/control/machine/wait_clock.hpp"

#include <algorithm>

namespace lockstep {

std::array<WaitClock::Moment, WaitClock::count> WaitClock::moments_of(const Job& job) {
    std::array<Moment, count> out{};
    const Attempt* attempt = job.attempt();
    if (attempt == nullptr) {
        return out;
    }
    out[placed] = {attempt->number, 0, attempt->placed_at};
    if (const Generation* newest = job.generation()) {
        out[formed] = {attempt->number, newest->number, newest->started_at};
        out[ended] = {attempt->number, newest->number, newest->finished_at};
        out[failed] = {attempt->number, newest->number, newest->failure_heard_at};
    }
    return out;
}

void WaitClock::look(const Job& job, const Surroundings& at) {
    const bool suspended = job.attempt() != nullptr && job.attempt()->suspended();
    if (was_suspended_ && !suspended) {
        went_on_ = at.steady;
    }
    was_suspended_ = suspended;
    const auto moments = moments_of(job);
    for (std::size_t which = 0; which < count; ++which) {
        if (seen_[which].moment != moments[which]) {
            seen_[which] = {moments[which], at.steady};
        }
    }
    if (!looked_ && moments[placed].wall != 0) {
        before_ =
            std::chrono::milliseconds{std::max<UnixMillis>(at.wall - moments[placed].wall, 0)};
        before_of_ = moments[placed];
    }
    looked_ = true;
    counts_ran_ = !at.scheduler_keeps_time_limit;
}

Waited WaitClock::waited(const Job& job, std::chrono::steady_clock::time_point now) const {
    const auto moments = moments_of(job);
    const auto since = [&](Which which) {
        const Seen& seen = seen_[which];
        return moments[which].wall != 0 && seen.moment == moments[which]
                   ? std::chrono::duration_cast<std::chrono::milliseconds>(now - seen.at)
                   : std::chrono::milliseconds{0};
    };
    // Nodes that the scheduler had stopped could not come meanwhile.
    const auto since_it_moves = [&](Which which) {
        return std::min(since(which),
                        std::chrono::duration_cast<std::chrono::milliseconds>(now - went_on_));
    };
    Waited out;
    out.placed = since_it_moves(placed);
    out.formed = since_it_moves(formed);
    out.ended = since_it_moves(ended);
    out.failed = since(failed);
    if (counts_ran_) {
        out.ran = since(placed);
        if (moments[placed] == before_of_) {
            out.ran += before_;
        }
    }
    return out;
}

}  // namespace lockstep
