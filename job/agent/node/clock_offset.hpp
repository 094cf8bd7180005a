// How far this node's clock is from the daemon's, as NTP measures it (RFC 5905, §8): the daemon's
// time was read half way between question and answer, give or take that half. Of the latest
// measurements the one with the shortest round trip counts: the others waited in queues. Pure; one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace lockstep {

class ClockOffset {
  public:
    using Steady = std::chrono::steady_clock::time_point;
    struct Estimate {
        std::int64_t offset_us = 0;  // this clock minus the daemon's, microseconds
        std::int64_t error_us = 0;   // the true offset is not further away than this
    };
    // Measurements kept: a clock that drifts by 50 ppm is 6.4 ms off after these, at one in 16 s.
    static constexpr std::size_t kKept = 8;

    // Whether the beat that is sent now is to ask. Often at first, then once in a while.
    bool due();
    // A question left: `wall_us` since the Unix epoch, and the same moment by a clock that is never
    // set.
    void asked(std::int64_t wall_us, Steady at);
    // Its answer: the daemon's clock, microseconds since the Unix epoch. Answers to older questions
    // are ignored.
    void answered(std::int64_t asked_us, std::int64_t daemon_us, Steady at);
    // A new connection: another daemon, perhaps on another machine.
    void restart();
    std::optional<Estimate> estimate() const;

  private:
    std::deque<Estimate> kept_;
    std::int64_t asked_us_ = 0;  // 0: nothing is open
    Steady asked_at_{};
    std::uint32_t beats_ = 0;
};

}  // namespace lockstep
