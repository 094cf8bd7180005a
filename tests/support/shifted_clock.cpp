// Preloaded into a program: its wall clock is LOCKSTEP_TEST_CLOCK_SHIFT seconds off.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

// NOLINTNEXTLINE(readability-identifier-naming): glibc's, in whose place it stands
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
    const long result = ::syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) {
        const char* shift = std::getenv("LOCKSTEP_TEST_CLOCK_SHIFT");
        time->tv_sec += shift == nullptr ? 0 : std::atol(shift);
    }
    return static_cast<int>(result);
}
