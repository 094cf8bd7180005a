// Time that tests can set. The machines of a job and of a node (daemon/control/machine,
// job/agent/machine) ask no clock: each input brings its time. What drives them, and others whose
// decisions depend on the time, are given a Clock. Timers, and whatever measures how long a call
// takes, ask std::chrono.
#pragma once

#include "job/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Wall time in milliseconds since the Unix epoch, UTC; what events and the API carry. 0 = unknown.
using UnixMillis = std::int64_t;

class Clock {
  public:
    virtual ~Clock() = default;
    virtual UnixMillis wall() const = 0;
    // The same in microseconds, as exactly as the clock can.
    virtual std::int64_t wall_us() const { return wall() * 1000; }
    // Never goes back; for deadlines and durations.
    virtual std::chrono::steady_clock::time_point steady() const = 0;
};

// The machine's clocks. Any thread.
class SystemClock final : public Clock {
  public:
    UnixMillis wall() const override;
    std::int64_t wall_us() const override;
    std::chrono::steady_clock::time_point steady() const override;
};

// The machine's wall time in seconds since the epoch, for a time stamp beside those that ranks
// report.
double wall_seconds();

// RFC 3339 in UTC with milliseconds: 2026-11-21T01:02:03.456Z.
std::string to_rfc3339(UnixMillis time);
// "90", "15:30", "04:00:00" or "1-12:00:00" (Slurm's time grammar: minutes, M:S, H:M:S, D-H:M:S)
// to seconds; invalid otherwise. Source: sbatch(1), --time.
Result<std::int64_t> parse_time_limit(std::string_view text);
// Seconds to "HH:MM:SS" or "D-HH:MM:SS".
std::string format_time_limit(std::int64_t seconds);

}  // namespace lockstep
