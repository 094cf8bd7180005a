#include "scheduler-integration/slurm/scheduler/pace.hpp"

#include "job/async/sleep.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr double kReadBurst = 4;
// What was acknowledged is looked at this soon: slurmctld saves its state within 5 s, and what it
// had not saved when it died is forgotten.
constexpr auto kFirstAudit = std::chrono::seconds{10};

}  // namespace

SlurmPace::SlurmPace(net::io_context& io, const Clock& clock, const SlurmSchedulerOptions& options)
    : clock_(clock),
      options_(options),
      tokens_(kReadBurst),
      tokens_at_(clock.steady()),
      last_query_(tokens_at_),
      last_change_(tokens_at_),
      timer_(io) {}

void SlurmPace::soon() {
    if (!std::exchange(soon_, true)) {
        timer_.cancel();
    }
}

void SlurmPace::begin_query() {
    soon_ = false;
    last_query_ = clock_.steady();
}

Task<void> SlurmPace::sleep(SteadyTime::duration rest) {
    co_await sleep_on(timer_, rest);
}

// 5 s after a change and while something is about to change, then a tenth of the time since, up to
// a minute; never longer than a third of the time that slurmctld remembers a finished job.
std::chrono::milliseconds SlurmPace::next_pause(const Needs& needs) const {
    if (needs.failures > 0) {
        const auto factor = std::min(needs.failures - 1, 6);
        return std::min(options_.poll_max, options_.poll_min * (1 << factor));
    }
    const auto now = clock_.steady();
    if (needs.tracked.empty()) {
        const auto quiet =
            std::chrono::duration_cast<std::chrono::milliseconds>(now - last_change_);
        return needs.leftover ? options_.poll_min
                              : std::clamp(quiet / 10, options_.poll_min, options_.idle_most);
    }
    std::chrono::milliseconds pause = options_.poll_max;
    for (const auto& [name, tracked] : needs.tracked) {
        const SlurmAttempt& attempt = tracked->attempt;
        const bool runs = attempt.seen && attempt.last_verdict.phase == SlurmPhase::running &&
                          !attempt.cancel_wanted && !attempt.ending && !attempt.over;
        const bool awaited = attempt.stage == SlurmAttempt::Stage::in_doubt ||
                             attempt.cancel_wanted || attempt.ending || attempt.over ||
                             attempt.empty_answers > 0 ||
                             now - attempt.last_try_end < kFirstAudit * 3;
        if (awaited) {
            pause = options_.poll_min;
            break;
        }
        if (!runs) {
            const auto quiet =
                std::chrono::duration_cast<std::chrono::milliseconds>(now - last_change_);
            pause = std::min(pause, std::max(options_.poll_min, quiet / 10));
        }
    }
    if (needs.min_job_age > 0) {
        const std::chrono::milliseconds third = std::chrono::seconds{needs.min_job_age} / 3;
        pause = std::min(pause, std::max(third, std::chrono::milliseconds{1'000}));
    }
    return pause;
}

SteadyTime SlurmPace::next_query(const Needs& needs) {
    constexpr auto kAtLeast = std::chrono::milliseconds{250};
    const auto now = clock_.steady();
    tokens_ =
        std::min(kReadBurst, tokens_ + std::chrono::duration<double>(now - tokens_at_).count() *
                                           options_.reads_per_second);
    tokens_at_ = now;
    SteadyTime due = last_query_ + (soon_ || needs.nodes ? kAtLeast : next_pause(needs));
    if (tokens_ < 1) {
        const auto refill = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::duration<double>((1 - tokens_) / options_.reads_per_second));
        due = std::max(due, now + refill + std::chrono::milliseconds{1});
    }
    return due;
}

}  // namespace lockstep
