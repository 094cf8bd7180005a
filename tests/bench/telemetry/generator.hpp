// What the generators of the benches share: time, percentiles, lines for the scripts beside them.
#pragma once

#include "job/async/asio.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::bench {

using Steady = std::chrono::steady_clock;

inline double ms_between(Steady::time_point from, Steady::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}
inline Steady::duration seconds_of(double seconds) {
    return std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>{seconds});
}

// Nearest rank; 0 of nothing.
inline double percentile(std::vector<double> values, double share) {
    if (values.empty()) {
        return 0;
    }
    std::sort(values.begin(), values.end());
    return values[std::min(values.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

// A line "name value unit", at once.
inline void say(const std::string& name, double value, const char* unit) {
    std::printf("%s %.17g %s\n", name.c_str(), value, unit);
    std::fflush(stdout);
}

// Whether `done` came true before `end`.
inline bool run_until(net::io_context& io, const std::function<bool()>& done,
                      Steady::time_point end) {
    while (!done() && Steady::now() < end) {
        io.run_one_for(std::chrono::milliseconds{100});
    }
    return done();
}

// As many descriptors as this process may have.
inline void raise_descriptors() {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace lockstep::bench
