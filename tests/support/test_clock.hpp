// Time that a test moves by hand; any thread may look at it. The steady clock goes with the wall
// clock, unless somebody sets that.
#pragma once

#include "job/base/clock.hpp"

#include <atomic>
#include <chrono>

namespace lockstep {

class TestClock final : public Clock {
  public:
    UnixMillis wall() const override { return wall_; }
    std::chrono::steady_clock::time_point steady() const override {
        return std::chrono::steady_clock::time_point{std::chrono::milliseconds{wall_ - set_}};
    }
    void advance(std::chrono::milliseconds time) { wall_ += time.count(); }
    // Somebody sets the wall clock ahead, or back: no time has passed. Not while another thread
    // looks at the steady clock.
    void set_ahead(std::chrono::milliseconds by) {
        wall_ += by.count();
        set_ += by.count();
    }

  private:
    std::atomic<UnixMillis> wall_{1'700'000'000'000};
    std::atomic<UnixMillis> set_{0};
};

}  // namespace lockstep
