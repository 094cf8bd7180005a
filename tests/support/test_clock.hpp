// Time that a test moves by hand; any thread may look at it. The steady clock goes with the wall
// clock.
#pragma once

#include "job/base/clock.hpp"

#include <atomic>
#include <chrono>

namespace lockstep {

class TestClock final : public Clock {
  public:
    UnixMillis wall() const override { return wall_; }
    std::chrono::steady_clock::time_point steady() const override {
        return std::chrono::steady_clock::time_point{std::chrono::milliseconds{wall_}};
    }
    void advance(std::chrono::milliseconds time) { wall_ += time.count(); }

  private:
    std::atomic<UnixMillis> wall_{1'700'000'000'000};
};

}  // namespace lockstep
