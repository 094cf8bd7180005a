// Preloaded into a program: calls that change or read who a process is fail or lie, as
// LOCKSTEP_TEST_IDENTITY says, read at the start (the program may clear its environment):
//
//   <side>:<call>:<how>[,<side>:<call>:<how>…]
//
// side  first: the process that was started. others: those that it forks
// call  a function's name below; setresuid(0) and setresgid(0) are the attempts to be root again,
//       no_new_privs, get_no_new_privs, dumpable and seccomp the options of prctl; time
// how   fail: EPERM. lie: success, and nothing done
//       half: setresuid, setresgid leave the saved number, setgroups leaves group 0 in
//       echo: getresuid, getresgid read back what was asked for last, true or not
//       keep: setresuid keeps the capabilities
//       time:lie is 40 days ahead
#include <dlfcn.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

using Real = long (*)(long, ...);

struct Lie {
    char text[48];  // <side>:<call>:
    char how[8];
};

// No object with a constructor: that may run after choose().
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of the process, set before main
Lie lies[4];
std::size_t count = 0;
Real real_syscall = nullptr;
pid_t first = 0;
uid_t asked_uid = 0;
gid_t asked_gid = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

Real glibcs() {
    if (real_syscall == nullptr) {
        real_syscall = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "syscall"));
    }
    return real_syscall;
}

__attribute__((constructor)) void choose() {
    glibcs();  // before a filter of system calls may forbid what looking it up needs
    first = ::getpid();
    const char* at = std::getenv("LOCKSTEP_TEST_IDENTITY");
    while (at != nullptr && count < std::size(lies)) {
        const std::size_t size = std::strcspn(at, ",");
        std::size_t colon = size;
        while (colon > 0 && at[colon - 1] != ':') {
            --colon;
        }
        Lie& one = lies[count];
        if (colon == 0 || colon >= sizeof one.text || size - colon >= sizeof one.how) {
            std::abort();  // a test that lies about nothing would pass
        }
        std::memcpy(one.text, at, colon);
        std::memcpy(one.how, at + colon, size - colon);
        ++count;
        at = at[size] == ',' ? at + size + 1 : nullptr;
    }
}

bool is(const char* call, const char* how) {
    const char* side = ::getpid() == first ? "first:" : "others:";
    const std::size_t start = std::strlen(side);
    const std::size_t size = std::strlen(call);
    return std::any_of(lies, lies + count, [&](const Lie& one) {
        return std::strcmp(one.how, how) == 0 && std::strncmp(one.text, side, start) == 0 &&
               std::strncmp(one.text + start, call, size) == 0 &&
               std::strcmp(one.text + start + size, ":") == 0;
    });
}

template <class... Arguments>
long really(long number, Arguments... arguments) {
    return glibcs()(number, arguments...);
}

template <class... Arguments>
int call(const char* name, long number, Arguments... arguments) {
    if (is(name, "lie")) {
        return 0;
    }
    if (is(name, "fail")) {
        errno = EPERM;
        return -1;
    }
    return static_cast<int>(really(number, arguments...));
}

const char* option_name(int option) {
    switch (option) {
        case PR_SET_NO_NEW_PRIVS:
            return "no_new_privs";
        case PR_GET_NO_NEW_PRIVS:
            return "get_no_new_privs";
        case PR_SET_DUMPABLE:
            return "dumpable";
        case PR_SET_SECCOMP:
            return "seccomp";
        default:
            return "";
    }
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): glibc's, in whose place they stand
extern "C" int getgrouplist(const char* user, gid_t group, gid_t* groups, int* size) {
    using Call = int (*)(const char*, gid_t, gid_t*, int*);
    if (is("getgrouplist", "lie")) {
        return 0;
    }
    return is("getgrouplist", "fail") ? -1
                                      : reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "getgrouplist"))(
                                            user, group, groups, size);
}
extern "C" int setgroups(std::size_t size, const gid_t* list) noexcept {
    std::array<gid_t, 65> more{};
    if (is("setgroups", "half") && size < more.size()) {
        std::copy_n(list, size, more.begin());
        return static_cast<int>(really(SYS_setgroups, size + 1, more.data()));
    }
    return call("setgroups", SYS_setgroups, size, list);
}
extern "C" int setresgid(gid_t real, gid_t effective, gid_t saved) noexcept {
    if (effective == 0) {
        return call("setresgid(0)", SYS_setresgid, real, effective, saved);
    }
    asked_gid = effective;
    return is("setresgid", "half")
               ? static_cast<int>(really(SYS_setresgid, real, effective, gid_t(-1)))
               : call("setresgid", SYS_setresgid, real, effective, saved);
}
extern "C" int setresuid(uid_t real, uid_t effective, uid_t saved) noexcept {
    if (effective == 0) {
        return call("setresuid(0)", SYS_setresuid, real, effective, saved);
    }
    asked_uid = effective;
    if (is("setresuid", "keep")) {
        really(SYS_prctl, PR_SET_KEEPCAPS, 1UL, 0UL, 0UL, 0UL);
    }
    return is("setresuid", "half")
               ? static_cast<int>(really(SYS_setresuid, real, effective, uid_t(-1)))
               : call("setresuid", SYS_setresuid, real, effective, saved);
}
extern "C" int setuid(uid_t uid) noexcept {
    return call("setuid", SYS_setuid, uid);
}
extern "C" int seteuid(uid_t uid) noexcept {
    return call("seteuid", SYS_setresuid, uid_t(-1), uid, uid_t(-1));
}
extern "C" int setegid(gid_t gid) noexcept {
    return call("setegid", SYS_setresgid, gid_t(-1), gid, gid_t(-1));
}
extern "C" int getgroups(int size, gid_t* list) noexcept {
    return call("getgroups", SYS_getgroups, size, list);
}
extern "C" int getresgid(gid_t* real, gid_t* effective, gid_t* saved) noexcept {
    if (is("getresgid", "echo")) {
        *real = *effective = *saved = asked_gid;
        return 0;
    }
    return call("getresgid", SYS_getresgid, real, effective, saved);
}
extern "C" int getresuid(uid_t* real, uid_t* effective, uid_t* saved) noexcept {
    if (is("getresuid", "echo")) {
        *real = *effective = *saved = asked_uid;
        return 0;
    }
    return call("getresuid", SYS_getresuid, real, effective, saved);
}
extern "C" std::time_t time(std::time_t* out) noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::time_t said = now.tv_sec + (is("time", "lie") ? 40 * 86'400 : 0);
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
    return call(option_name(option), SYS_prctl, option, a, b, c, d);
}
// For capget, which glibc has no function for. Nothing else is asked here: behind a filter of
// system calls getpid() may end the process.
extern "C" long syscall(long number, ...) noexcept {
    va_list rest;
    va_start(rest, number);
    std::array<long, 6> words{};
    for (long& word : words) {
        word = va_arg(rest, long);
    }
    va_end(rest);
    if (number == SYS_capget) {
        return call("capget", number, words[0], words[1]);
    }
    return really(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
// NOLINTEND(readability-identifier-naming)
