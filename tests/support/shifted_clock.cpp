// Preloaded into a program: its wall clock is off by LOCKSTEP_TEST_CLOCK_SHIFT seconds, and by as
// many more as the file LOCKSTEP_TEST_CLOCK_FILE holds (eight bytes, in the machine's order) at
// that moment: whoever writes there makes it jump.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

const volatile std::int64_t* jumps() {
    const char* path = std::getenv("LOCKSTEP_TEST_CLOCK_FILE");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return nullptr;
    }
    void* place = ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return place == MAP_FAILED ? nullptr : static_cast<const volatile std::int64_t*>(place);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): glibc's, in whose place it stands
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
    const long result = ::syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) {
        static const char* const shift = std::getenv("LOCKSTEP_TEST_CLOCK_SHIFT");
        static const volatile std::int64_t* const jumped = jumps();
        time->tv_sec += shift == nullptr ? 0 : std::atol(shift);
        time->tv_sec += jumped == nullptr ? 0 : *jumped;
    }
    return static_cast<int>(result);
}
