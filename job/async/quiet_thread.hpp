// A thread that takes no signals: they are the program's own thread's, which waits for them.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace lockstep {

template <class Body>
std::thread quiet_thread(Body body) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread out{std::move(body)};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return out;
}

}  // namespace lockstep
