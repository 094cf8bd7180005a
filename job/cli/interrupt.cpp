#include "job/cli/interrupt.hpp"

#include "job/cli/cli_limits.hpp"
#include "job/cli/options.hpp"

#include <signal.h>
#include <unistd.h>

#include <ctime>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr std::chrono::seconds kTurnPatience{1};
constexpr int kEndOfWait = SIGUSR1;  // sent to the thread itself

sigset_t interrupts() {
    sigset_t out;
    ::sigemptyset(&out);
    ::sigaddset(&out, SIGINT);
    ::sigaddset(&out, SIGTERM);
    return out;
}

void tell(const std::string& text) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) {
        // Output is closed; there is no way to report the error.
    }
}

}  // namespace

void Stop::begin() {
    const std::lock_guard<std::mutex> lock{guard_};
    heeded_ = true;
}

bool Stop::end() {
    const std::lock_guard<std::mutex> lock{guard_};
    heeded_ = false;
    return asked_;
}

bool Stop::asked() const {
    const std::lock_guard<std::mutex> lock{guard_};
    return asked_;
}

bool Stop::ask() {
    const std::lock_guard<std::mutex> lock{guard_};
    const bool first = heeded_ && !asked_;
    asked_ = asked_ || heeded_;
    return first;
}

Interrupts::Interrupts(std::function<bool(const std::string& id)> cancel, std::string lockstep,
                       std::string cancel_verb, Stop* stop)
    : cancel_(std::move(cancel)),
      lockstep_(std::move(lockstep)),
      cancel_verb_(std::move(cancel_verb)),
      stop_(stop) {
    sigset_t set = interrupts();
    ::sigaddset(&set, kEndOfWait);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    turn_.lock();
    thread_ = std::thread([this] { wait(); });
}

Interrupts::~Interrupts() {
    ::pthread_kill(thread_.native_handle(), kEndOfWait);
    thread_.join();
    turn_.unlock();
}

void Interrupts::watching(const std::string& id) {
    const std::lock_guard<std::mutex> lock{guard_};
    id_ = id;
}

void Interrupts::while_idle(const std::function<void()>& pause) {
    turn_.unlock();
    pause();
    turn_.lock();
}

void Interrupts::wait() {
    sigset_t set = interrupts();
    ::sigaddset(&set, kEndOfWait);
    int number = 0;
    do {
        while (::sigwait(&set, &number) != 0) {
        }
    } while (number != kEndOfWait && stop_ != nullptr && stop_->ask());
    if (number != kEndOfWait) {
        on_interrupt(number);
    }
}

void Interrupts::on_interrupt(int number) {
    std::string id;
    {
        const std::lock_guard<std::mutex> lock{guard_};
        id = id_;
    }
    // Never given back: the other thread draws no more.
    const bool quiet = turn_.try_lock_for(kTurnPatience);
    if (id.empty()) {
        tell(quiet ? "\n" : "");
        ::_exit(static_cast<int>(Exit::interrupted));
    }
    tell("\ninterrupted; the job goes on: " + lockstep_ + " follow " + id + "\n");
    if (number == SIGINT) {
        tell("to end it: Ctrl-C again now, or " + lockstep_ + " " + cancel_verb_ + " " + id + "\n");
        const sigset_t set = interrupts();
        const timespec patience{limits::kSecondInterrupt.count(), 0};
        if (::sigtimedwait(&set, nullptr, &patience) == SIGINT && cancel_(id)) {
            tell(id + "  is being cancelled\n");
            ::_exit(static_cast<int>(Exit::cancelled));
        }
    }
    ::_exit(static_cast<int>(Exit::interrupted));
}

}  // namespace lockstep::cli
