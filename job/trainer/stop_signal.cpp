#include "job/trainer/stop_signal.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace lockstep::stop_signal {
namespace {

std::atomic<bool> stop{false};
std::atomic<bool> checkpoint{false};
std::atomic<bool> profile{false};
std::atomic<std::int64_t> first_seen{0};  // steady clock, ns; 0 = not seen
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

// What the job's checkpoint.signal names. TERM means to end, whoever sends it.
int checkpoint_signal() {
    const char* name = std::getenv("LOCKSTEP_CHECKPOINT_SIGNAL");
    const std::string_view word = name == nullptr ? "" : name;
    return word == "USR1" ? SIGUSR1 : word == "INT" ? SIGINT : word == "HUP" ? SIGHUP : SIGUSR2;
}

void on_signal(int number) {
    (number == SIGTERM  ? stop
     : number == SIGURG ? profile
                        : checkpoint)
        .store(true, std::memory_order_relaxed);
}

}  // namespace

// The handler runs on a thread of its own: where it interrupted a product of matrices by oneDNN 2.6
// (Debian 12's, kernels made at run time), the heap was damaged, and free() ended the rank
// ("corrupted size vs. prev_size"), within some hundred signals.
void install() {
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(checkpoint_signal(), &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGURG, &action, nullptr);
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, checkpoint_signal());
    sigaddset(&own, SIGTERM);
    sigaddset(&own, SIGURG);
    std::thread{[own] {
        pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
        for (;;) {
            ::pause();
        }
    }}.detach();
    pthread_sigmask(SIG_BLOCK, &own, nullptr);  // and in every thread that comes from this one
}

bool requested() {
    return stop.load(std::memory_order_relaxed);
}

std::chrono::milliseconds age() {
    if (!requested()) {
        return std::chrono::milliseconds{0};
    }
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    std::int64_t since = 0;
    if (first_seen.compare_exchange_strong(since, now)) {
        since = now;
    }
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::nanoseconds{now - since});
}

bool take_checkpoint_request() {
    return checkpoint.exchange(false);
}

bool take_profile_request() {
    return profile.exchange(false);
}

void request() {
    stop = true;
}

void ask_for_profile() {
    profile = true;
}

void reset() {
    stop = false;
    checkpoint = false;
    profile = false;
    first_seen = 0;
}

}  // namespace lockstep::stop_signal
