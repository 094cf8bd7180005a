// When the rows that ranks have reported go to the daemon: soon after the first one that follows a
// quiet time, together with those of the other ranks that end the same step, and then not more than
// ten times a second. Pure: the caller has the clock. Agent thread only.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

class FlushPace {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // When rows are to go of which the first came at `first_row`; never before it.
    Time due(Time first_row) const { return std::max(first_row + kGather, flushed_ + kApart); }
    // Rows have gone.
    void flushed(Time now) { flushed_ = now; }

  private:
    static constexpr std::chrono::milliseconds kGather{20};
    static constexpr std::chrono::milliseconds kApart{100};

    Time flushed_ = Time::min();
};

}  // namespace lockstep
