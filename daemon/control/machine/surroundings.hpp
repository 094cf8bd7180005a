// What a job's machine is told of the world with each call. Value; control thread only.
#pragma once

#include "daemon/telemetry/series/series.hpp"
#include "job/base/clock.hpp"

#include <chrono>
#include <string_view>

namespace lockstep {

struct Surroundings {
    std::chrono::steady_clock::time_point steady{};
    UnixMillis wall = 0;
    // The timers' own clock, which no test moves: whether this daemon could hear anything.
    std::chrono::steady_clock::time_point timers{};
    const telemetry::JobSeries* series = nullptr;  // nullptr: nothing was reported yet
    std::string_view scheduler{};                  // its name
    std::string_view scheduler_title{};            // as sentences call it
    bool scheduler_keeps_time_limit = false;       // Scheduler::keeps_time_limit()
    // Settings (ControlSettings).
    std::chrono::milliseconds deaf{3'000};
    bool doubtful_ends_recover = true;
    bool keep_on_node_fail = true;

    double wall_seconds() const { return static_cast<double>(wall) / 1000.0; }
};

}  // namespace lockstep
