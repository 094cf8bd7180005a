// LOCKSTEP_CHECK: what must be true or the program is broken. Always on, also in release builds:
// systemd restarts, replay recovers, and a wrong answer never leaves the process.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace lockstep::detail {
[[noreturn]] inline void check_failed(const char* what, const char* file, int line) {
    std::fprintf(stderr, "lockstep: check failed: %s (%s:%d)\n", what, file, line);
    std::abort();
}
}  // namespace lockstep::detail

#define LOCKSTEP_CHECK(condition)                                             \
    do {                                                                      \
        if (!(condition)) {                                                   \
            ::lockstep::detail::check_failed(#condition, __FILE__, __LINE__); \
        }                                                                     \
    } while (false)
