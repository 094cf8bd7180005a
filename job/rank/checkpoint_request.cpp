#include "job/rank/checkpoint_request.hpp"

#include <signal.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

std::atomic<bool> asked_for_checkpoint{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");
// Of who had the signal before; written before the handler is installed.
struct sigaction handler_before{};

void on_checkpoint_signal(int number, siginfo_t* info, void* context) {
    asked_for_checkpoint.store(true, std::memory_order_relaxed);
    if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
        handler_before.sa_sigaction(number, info, context);
    } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
        handler_before.sa_handler(number);
    }
}

bool install_checkpoint_handler() {
    constexpr std::array<std::pair<std::string_view, int>, 5> kSignals{{{"USR2", SIGUSR2},
                                                                        {"USR1", SIGUSR1},
                                                                        {"TERM", SIGTERM},
                                                                        {"INT", SIGINT},
                                                                        {"HUP", SIGHUP}}};
    const char* name = std::getenv("LOCKSTEP_CHECKPOINT_SIGNAL");
    for (const auto& [word, number] : kSignals) {
        if (name != nullptr && word == name) {
            sigaction(number, nullptr, &handler_before);
            struct sigaction action{};
            action.sa_sigaction = on_checkpoint_signal;
            action.sa_flags = SA_RESTART | SA_SIGINFO;
            sigemptyset(&action.sa_mask);
            return sigaction(number, &action, nullptr) == 0;
        }
    }
    return false;
}

}  // namespace

bool checkpoint_requested() {
    static const bool kInstalled = install_checkpoint_handler();
    return kInstalled && asked_for_checkpoint.exchange(false);
}

}  // namespace lockstep
