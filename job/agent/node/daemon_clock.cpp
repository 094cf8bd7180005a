#include "job/agent/node/daemon_clock.hpp"

#include <cstdlib>

namespace lockstep {

UnixMillis DaemonClock::hello() {
    hello_at_ = SystemClock{}.wall();
    hello_made_ = std::chrono::steady_clock::now();
    return hello_at_;
}

// As NTP does: its answer was made half way between HELLO and WELCOME, give or take that half. A
// machine that is busy takes long to answer, and that is not its clock.
DaemonClock::Rough DaemonClock::by_welcome(UnixMillis daemon) const {
    const auto trip = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::steady_clock::now() - hello_made_)
                          .count();
    return {hello_at_ + trip / 2 - daemon, trip / 2};
}

void DaemonClock::fill(wire::Beat& beat) {
    if (const auto offset = offset_.estimate()) {
        beat.offset_us = offset->offset_us;
        beat.offset_error_us = offset->error_us;
    }
    if (offset_.due()) {
        beat.asks_us = SystemClock{}.wall_us();
        offset_.asked(beat.asks_us, std::chrono::steady_clock::now());
    }
}

void DaemonClock::answered(const wire::Clock& clock) {
    offset_.answered(clock.asked_us, clock.daemon_us, std::chrono::steady_clock::now());
}

std::int64_t DaemonClock::known_offset() const {
    const auto clock = offset_.estimate();
    const bool known = clock && std::abs(clock->offset_us) > clock->error_us;
    return known ? clock->offset_us / 1000 : 0;
}

}  // namespace lockstep
