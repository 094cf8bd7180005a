// What this node knows of the daemon's clock: roughly by HELLO and WELCOME, for the pre-flight, and
// then ever better by the answers to this node's beats (clock_offset.hpp). Agent thread only.
#pragma once

#include "job/agent/node/clock_offset.hpp"
#include "job/base/clock.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>

namespace lockstep {

class DaemonClock {
  public:
    // Milliseconds: this clock minus the daemon's, and the most that is wrong with it.
    struct Rough {
        std::int64_t offset_ms = 0;
        std::int64_t error_ms = 0;
    };

    // HELLO is made now; its time.
    UnixMillis hello();
    // It was answered, maybe by another daemon.
    void welcomed() { offset_.restart(); }
    // As the WELCOME that came just now says: `daemon` is its time.
    Rough by_welcome(UnixMillis daemon) const;
    // What a beat says, and asks now and then.
    void fill(wire::Beat& beat);
    void answered(const wire::Clock& clock);
    // This clock minus the daemon's, in milliseconds; 0: it is not beyond doubt that there is any
    // difference.
    std::int64_t known_offset() const;

  private:
    UnixMillis hello_at_ = 0;  // when the newest HELLO was made
    std::chrono::steady_clock::time_point hello_made_;
    ClockOffset offset_;
};

}  // namespace lockstep
