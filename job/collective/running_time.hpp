// Time in which this process ran: a rank that waits for others is suspended with them (SIGSTOP, as
// Slurm's `scontrol suspend` and gang scheduling do), and must not lose its patience with them when
// it goes on.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

// One thread.
class RunningTime {
  public:
    using Clock = std::chrono::steady_clock;
    // Of a longer time between two calls only so much counts. Whoever waits calls it far more
    // often.
    static constexpr std::chrono::seconds kAtOnce{1};

    explicit RunningTime(Clock::time_point now = Clock::now()) : last_(now) {}
    // Since the call before.
    Clock::duration passed(Clock::time_point now = Clock::now()) {
        const Clock::duration out = std::min<Clock::duration>(now - last_, kAtOnce);
        last_ = now;
        return out;
    }

  private:
    Clock::time_point last_;
};

}  // namespace lockstep
