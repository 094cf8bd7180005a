// Preloaded into a program: one call that changes or reads who a process is fails, or says that it
// has succeeded and has done nothing; time:lie is 40 days ahead.
// LOCKSTEP_TEST_IDENTITY=<call>:fail|lie, read at the start: the program may clear its environment.
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

enum class How { truth, fail, lie };

// No object with a constructor: that may run after choose().
char chosen[32];  // NOLINT: of the whole process, set once before main()
How how = How::truth;

bool is_chosen(const char* name) {
    return std::strcmp(chosen, name) == 0;
}

__attribute__((constructor)) void choose() {
    const char* text = std::getenv("LOCKSTEP_TEST_IDENTITY");
    const char* colon = text == nullptr ? nullptr : std::strchr(text, ':');
    if (colon != nullptr && static_cast<std::size_t>(colon - text) < sizeof chosen) {
        std::memcpy(chosen, text, static_cast<std::size_t>(colon - text));
        how = std::strcmp(colon, ":lie") == 0 ? How::lie : How::fail;
    }
}

template <class... Arguments>
int call(const char* name, long number, Arguments... arguments) {
    if (!is_chosen(name)) {
        return static_cast<int>(::syscall(number, arguments...));
    }
    if (how == How::lie) {
        return 0;
    }
    errno = EPERM;
    return -1;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): glibc's, in whose place they stand
extern "C" int setgroups(std::size_t count, const gid_t* list) noexcept {
    return call("setgroups", SYS_setgroups, count, list);
}
extern "C" int setresgid(gid_t real, gid_t effective, gid_t saved) noexcept {
    return call("setresgid", SYS_setresgid, real, effective, saved);
}
extern "C" int setresuid(uid_t real, uid_t effective, uid_t saved) noexcept {
    return call("setresuid", SYS_setresuid, real, effective, saved);
}
extern "C" int getgroups(int count, gid_t* list) noexcept {
    return call("getgroups", SYS_getgroups, count, list);
}
extern "C" int getresgid(gid_t* real, gid_t* effective, gid_t* saved) noexcept {
    return call("getresgid", SYS_getresgid, real, effective, saved);
}
extern "C" int getresuid(uid_t* real, uid_t* effective, uid_t* saved) noexcept {
    return call("getresuid", SYS_getresuid, real, effective, saved);
}
extern "C" std::time_t time(std::time_t* out) noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::time_t said = now.tv_sec + (is_chosen("time") ? 40 * 86'400 : 0);
    if (out != nullptr) {
        *out = said;
    }
    return said;
}
extern "C" int prctl(int option, ...) noexcept {
    va_list rest;
    va_start(rest, option);
    const auto a = va_arg(rest, unsigned long);
    const auto b = va_arg(rest, unsigned long);
    const auto c = va_arg(rest, unsigned long);
    const auto d = va_arg(rest, unsigned long);
    va_end(rest);
    const bool reads = option == PR_GET_NO_NEW_PRIVS;
    return reads && how == How::lie ? static_cast<int>(::syscall(SYS_prctl, option, a, b, c, d))
                                    : call("prctl", SYS_prctl, option, a, b, c, d);
}
// NOLINTEND(readability-identifier-naming)
