// How long a job's newest steps took, over time: the percentile over its ranks at one step says
// nothing of an evaluation or a save in every 50th step. A duration is the time between two steps
// as the first rank reports them, of reports that skip steps the mean of those, or what a rank
// that reports the newest step says of it, if that is more. The first step of a generation, which
// imports and compiles, does not count, nor does one in which a rank evaluates or saves and says
// so. Durations are kept to 9 %. Value of 2 KB; control thread only.
#pragma once

#include "daemon/telemetry/history/history_chunk.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::telemetry {

class StepTimes {
  public:
    // All there is to it, to be stored.
    struct State {
        Start start;
        std::int64_t step = -1;
        double at = 0;
        double seconds = 0;
        bool counts = false;
        bool paused = false;
        std::vector<std::uint8_t> newest{};  // buckets of durations, the oldest first
    };
    State state() const;
    // Of more than kWindow durations the last.
    static StepTimes from(const State& state);

    // A report. `time`: the rank's clock, seconds since the Unix epoch; `seconds`: what it says
    // that the step took, NaN = nothing. `still_at`: when the job last stood still by the
    // scheduler's doing, as `time`; 0 = never. Rows of steps that are not the newest count for
    // nothing.
    void note(Start start, std::int64_t step, double time, double seconds, double still_at);

    // A rank says at `time`, after its step `step` (-1: it has reported none), that it evaluates or
    // saves: what comes until the next step is no step. The ranks that wait for it cannot tell.
    void pause(Start start, std::int64_t step, double time);

    std::size_t steps() const { return count_; }  // at most kWindow
    // Seconds that 99 of 100 of them did not exceed, and all but one of fewer: one that got stuck
    // and went on is not what steps take. 0 if there are no two.
    double p99() const;

    static constexpr std::size_t kWindow = 1024;

  private:
    void push(double seconds);
    void push_bucket(std::uint8_t bucket);

    static constexpr std::size_t kBuckets = 256;
    std::array<std::uint8_t, kWindow> newest_{};  // buckets, a ring
    std::array<std::uint16_t, kBuckets> in_bucket_{};
    std::size_t next_ = 0;
    std::size_t count_ = 0;
    Start start_;
    std::int64_t step_ = -1;  // the newest of this generation; -1: none
    double at_ = 0;
    double seconds_ = 0;   // it took, as far as was heard; 0: not known
    bool counts_ = false;  // that step does
    bool paused_ = false;  // since that step
};

}  // namespace lockstep::telemetry
