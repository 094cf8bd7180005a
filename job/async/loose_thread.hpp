// A thread for calls that may never come back: into a driver, or to a file server that is gone.
// Whoever ends it waits a moment and then goes on without it. What the body uses must therefore be
// the body's own (shared pointers), never its owner's. Takes no signals (quiet_thread.hpp).
#pragma once

#include "job/async/quiet_thread.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep {

class LooseThread {
  public:
    template <class Body>
    explicit LooseThread(Body body) {
        thread_ = quiet_thread([end = end_, body = std::move(body)]() mutable {
            {
                Body own{std::move(body)};
                own();
            }  // what it held is gone before anybody is told
            const std::lock_guard lock{end->mutex};
            end->reached = true;
            end->changed.notify_all();
        });
    }
    LooseThread(const LooseThread&) = delete;
    LooseThread& operator=(const LooseThread&) = delete;
    ~LooseThread() { finish(std::chrono::milliseconds{0}); }

    // The body has been told to end. False: it did not in time and is left alone from now on.
    bool finish(std::chrono::milliseconds patience) {
        if (!thread_.joinable()) {
            return true;
        }
        std::unique_lock lock{end_->mutex};
        const bool ended = end_->changed.wait_for(lock, patience, [this] { return end_->reached; });
        lock.unlock();
        if (ended) {
            thread_.join();
        } else {
            ++count();
            thread_.detach();
        }
        return ended;
    }
    // How many of this process were left alone: it must end by _exit(), for they may use anything.
    static int abandoned() { return count(); }

  private:
    struct End {
        std::mutex mutex;
        std::condition_variable changed;
        bool reached = false;
    };
    static std::atomic<int>& count() {
        static std::atomic<int> abandoned{0};
        return abandoned;
    }

    std::shared_ptr<End> end_ = std::make_shared<End>();
    std::thread thread_;
};

}  // namespace lockstep
