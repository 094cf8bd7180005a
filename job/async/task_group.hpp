// Owns the coroutines in flight of one component: nothing is detached. spawn() from the
// io_context's thread; stop by closing what they wait on, then co_await join(). The group must
// outlive its coroutines; destroying it with work in flight aborts.
#pragma once

#include "job/async/asio.hpp"

#include <cstddef>
#include <string_view>

namespace lockstep {

class TaskGroup {
  public:
    explicit TaskGroup(net::io_context& io) : io_(io), idle_(io) {
        idle_.expires_at(net::steady_timer::time_point::max());
    }
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;
    ~TaskGroup();

    // Has the coroutine start in a turn of its own, never within spawn(): callers go on with what
    // they have half done, and what the coroutine sees is what they leave. An exception that leaves
    // it is a defect: logged with `name`, then abort.
    void spawn(std::string_view name, Task<void> task);
    // Waits until none is in flight.
    Task<void> join();
    std::size_t size() const { return running_; }
    net::io_context& io() { return io_; }

  private:
    net::io_context& io_;
    net::steady_timer idle_;
    std::size_t running_ = 0;
};

}  // namespace lockstep
