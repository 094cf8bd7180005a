// A thread that takes no signals: they are the program's own thread's, which waits for them.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace lockstep {

// Throws std::system_error where there may be no more threads (a cgroup's pids.max).
template <class Body>
std::thread quiet_thread(Body body) {
    struct Restored {
        sigset_t before{};
        Restored() {
            sigset_t all;
            ::sigfillset(&all);
            ::pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        Restored(const Restored&) = delete;
        Restored& operator=(const Restored&) = delete;
        ~Restored() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    };
    const Restored restored;
    return std::thread{std::move(body)};
}

}  // namespace lockstep
