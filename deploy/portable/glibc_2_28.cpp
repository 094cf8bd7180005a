// What the compiler's libraries and Lockstep call of a glibc newer than 2.28, for programs that are
// linked against 2.28. Each does what the newer glibc's manual says of it, as far as Lockstep uses
// it. A symbol that is missing here fails the link, not the node.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace {

// The folder that one of this thread's spawns shall begin in
// (posix_spawn_file_actions_addchdir_np).
struct Folder {
    const posix_spawn_file_actions_t* actions = nullptr;
    std::string path;
};
thread_local Folder g_folder;

constexpr long kNanosecondsPerSecond = 1'000'000'000;
// A wait on another clock is cut into pieces this long, so that a wall clock that jumps costs no
// more.
constexpr long kLongestWait = 250'000'000;
// Where neither close_range(2) nor /proc tells what is open.
constexpr rlim_t kDescriptorsAtMost = 65'536;

long nanoseconds_until(const timespec& when, const timespec& now) {
    const auto seconds = std::clamp<std::int64_t>(when.tv_sec - now.tv_sec, -2, 2);
    return static_cast<long>(seconds) * kNanosecondsPerSecond + (when.tv_nsec - now.tv_nsec);
}

// Now on the wall clock, and at most kLongestWait more.
timespec wall_clock_in(long nanoseconds) {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += std::clamp(nanoseconds, 0L, kLongestWait);
    until.tv_sec += until.tv_nsec / kNanosecondsPerSecond;
    until.tv_nsec %= kNanosecondsPerSecond;
    return until;
}

// Calls `spawn` with the process in the folder that was asked for, if one was. Other threads are
// there too for that moment: Lockstep's use no relative paths while they spawn.
template <class Spawn>
int spawn_in_folder(const posix_spawn_file_actions_t* actions, Spawn&& spawn) {
    if (actions == nullptr || g_folder.actions != actions) {
        return spawn();
    }
    const std::string folder = std::move(g_folder.path);
    g_folder = {};
    const int before = ::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (before < 0) {
        return errno;
    }
    int status = ::chdir(folder.c_str()) == 0 ? 0 : errno;
    if (status == 0) {
        status = spawn();
        if (::fchdir(before) != 0) {
            std::abort();  // every relative path would be another one
        }
    }
    ::close(before);
    return status;
}

unsigned int descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return kDescriptorsAtMost;
    }
    return static_cast<unsigned int>(std::min(limit.rlim_cur, kDescriptorsAtMost));
}

}  // namespace

extern "C" {

// glibc's own variable, here: its three names are one there, but not in zig's list of glibc's
// symbols, and a program that was compiled to have a copy of `environ` alone would see none of its
// environment.
char** __environ = nullptr;  // NOLINT
extern char** environ __attribute__((alias("__environ")));
extern char** _environ __attribute__((alias("__environ")));  // NOLINT

// 2.32: false where there may be threads. libstdc++ counts references with atomic operations then.
char __libc_single_threaded = 0;  // NOLINT

// 2.36: std::random_device.
std::uint32_t arc4random() noexcept {
    std::uint32_t value = 0;
    ssize_t got = 0;
    do {
        got = ::getrandom(&value, sizeof value, 0);
    } while (got < 0 && errno == EINTR);
    if (got != static_cast<ssize_t>(sizeof value)) {
        std::abort();
    }
    return value;
}

// 2.30: waits of a std::condition_variable until a time of the steady clock. May return 0 early, as
// any wait may.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* when) {
    timespec now{};
    if (::clock_gettime(clock, &now) != 0) {
        return EINVAL;
    }
    const timespec until = wall_clock_in(nanoseconds_until(*when, now));
    const int status = ::pthread_cond_timedwait(condition, mutex, &until);
    if (status != ETIMEDOUT) {
        return status;
    }
    ::clock_gettime(clock, &now);
    return nanoseconds_until(*when, now) > 0 ? 0 : ETIMEDOUT;
}

// 2.30: std::timed_mutex.
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const timespec* when) noexcept {
    timespec now{};
    while (::clock_gettime(clock, &now) == 0) {
        const long left = nanoseconds_until(*when, now);
        const timespec until = wall_clock_in(left);
        const int status = ::pthread_mutex_timedlock(mutex, &until);
        if (status != ETIMEDOUT || left <= kLongestWait) {
            return status;
        }
    }
    return EINVAL;
}

// 2.29, with the two that follow: the linker gives those all calls of posix_spawn and posix_spawnp
// (--wrap). One folder for each spawn, set by the thread that spawns.
int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t* actions,
                                         const char* path) noexcept {
    g_folder = {actions, path};
    return 0;
}

int __real_posix_spawn(pid_t* pid, const char* path,
                       const posix_spawn_file_actions_t* actions,  // NOLINT
                       const posix_spawnattr_t* attributes, char* const argv[],
                       char* const environment[]);
int __real_posix_spawnp(pid_t* pid, const char* file,
                        const posix_spawn_file_actions_t* actions,  // NOLINT
                        const posix_spawnattr_t* attributes, char* const argv[],
                        char* const environment[]);

int __wrap_posix_spawn(pid_t* pid, const char* path,
                       const posix_spawn_file_actions_t* actions,  // NOLINT
                       const posix_spawnattr_t* attributes, char* const argv[],
                       char* const environment[]) {
    return spawn_in_folder(actions, [&] {
        return __real_posix_spawn(pid, path, actions, attributes, argv, environment);
    });
}

int __wrap_posix_spawnp(pid_t* pid, const char* file,
                        const posix_spawn_file_actions_t* actions,  // NOLINT
                        const posix_spawnattr_t* attributes, char* const argv[],
                        char* const environment[]) {
    return spawn_in_folder(actions, [&] {
        return __real_posix_spawnp(pid, file, actions, attributes, argv, environment);
    });
}

// 2.34. Safe between fork and exec; a kernel before 5.9 has no close_range(2).
int close_range(unsigned int first, unsigned int last, int flags) noexcept {
    const long status = ::syscall(SYS_close_range, first, last, flags);
    if (status == 0 || errno != ENOSYS || flags != 0) {
        return static_cast<int>(status);
    }
    const unsigned int end = std::min(last, descriptor_limit() - 1);
    for (unsigned int fd = first; fd <= end; ++fd) {
        ::close(static_cast<int>(fd));
    }
    return 0;
}

// 2.34. Closes what is open now: what is opened before the spawn, by another thread, is
// close-on-exec in Lockstep. A descriptor that is closed by then is none that posix_spawn fails
// for.
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions,
                                             int first) noexcept {
    DIR* open = ::opendir("/proc/self/fd");
    if (open == nullptr) {
        const int end = static_cast<int>(descriptor_limit());
        for (int fd = first; fd < end; ++fd) {
            if (::fcntl(fd, F_GETFD) < 0) {
                continue;
            }
            if (const int status = ::posix_spawn_file_actions_addclose(actions, fd); status != 0) {
                return status;
            }
        }
        return 0;
    }
    int status = 0;
    for (const dirent* entry = ::readdir(open); entry != nullptr && status == 0;
         entry = ::readdir(open)) {
        const char* name = static_cast<const char*>(entry->d_name);
        int fd = -1;
        std::from_chars(name, name + std::strlen(name), fd);
        if (fd >= first && fd != ::dirfd(open)) {
            status = ::posix_spawn_file_actions_addclose(actions, fd);
        }
    }
    ::closedir(open);
    return status;
}

// 2.32: "TERM" of SIGTERM, null of what has no name.
const char* sigabbrev_np(int number) noexcept {
    struct Name {
        int number;
        const char* text;
    };
    static constexpr std::array kNames{
        Name{SIGHUP, "HUP"},       Name{SIGINT, "INT"},       Name{SIGQUIT, "QUIT"},
        Name{SIGILL, "ILL"},       Name{SIGTRAP, "TRAP"},     Name{SIGABRT, "ABRT"},
        Name{SIGBUS, "BUS"},       Name{SIGFPE, "FPE"},       Name{SIGKILL, "KILL"},
        Name{SIGUSR1, "USR1"},     Name{SIGSEGV, "SEGV"},     Name{SIGUSR2, "USR2"},
        Name{SIGPIPE, "PIPE"},     Name{SIGALRM, "ALRM"},     Name{SIGTERM, "TERM"},
        Name{SIGSTKFLT, "STKFLT"}, Name{SIGCHLD, "CHLD"},     Name{SIGCONT, "CONT"},
        Name{SIGSTOP, "STOP"},     Name{SIGTSTP, "TSTP"},     Name{SIGTTIN, "TTIN"},
        Name{SIGTTOU, "TTOU"},     Name{SIGURG, "URG"},       Name{SIGXCPU, "XCPU"},
        Name{SIGXFSZ, "XFSZ"},     Name{SIGVTALRM, "VTALRM"}, Name{SIGPROF, "PROF"},
        Name{SIGWINCH, "WINCH"},   Name{SIGPOLL, "POLL"},     Name{SIGPWR, "PWR"},
        Name{SIGSYS, "SYS"},
    };
    for (const Name& name : kNames) {
        if (name.number == number) {
            return name.text;
        }
    }
    return nullptr;
}

}  // extern "C"
