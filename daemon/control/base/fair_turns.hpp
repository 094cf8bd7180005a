// Who may go on now, when only a few can at a time: whoever waits is served in the order of coming
// among their own, and those who wait in turn, so that the many questions of one do not hold up the
// one of another. Control thread; outlives the coroutines that wait.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace lockstep {

class FairTurns {
  public:
    // `at_once` go on at a time; beyond them `waiting` of one may wait.
    FairTurns(net::io_context& io, std::size_t at_once, std::size_t waiting)
        : io_(io), free_(at_once), most_waiting_(waiting) {}
    FairTurns(const FairTurns&) = delete;
    FairTurns& operator=(const FairTurns&) = delete;

    // A turn, for as long as it lives.
    class Turn {
      public:
        explicit Turn(FairTurns& turns) : turns_(&turns) {}
        Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
        Turn& operator=(Turn&&) = delete;
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        ~Turn() {
            if (turns_ != nullptr) {
                turns_->release();
            }
        }

      private:
        FairTurns* turns_;
    };

    // exhausted: too many of `who` wait; unavailable: close() came.
    Task<Result<Turn>> wait(std::string who);
    std::size_t waiting() const { return waiting_; }
    // Whoever waits is sent away, now and from now on.
    void close();

  private:
    struct Waiter {
        explicit Waiter(net::io_context& io) : timer(io, net::steady_timer::time_point::max()) {}
        net::steady_timer timer;
        bool granted = false;
    };
    void release();

    net::io_context& io_;
    std::size_t free_;
    const std::size_t most_waiting_;
    std::size_t waiting_ = 0;
    bool closed_ = false;
    std::map<std::string, std::deque<std::shared_ptr<Waiter>>> lines_;  // none is empty
    std::list<std::string> order_;  // of lines_; the front is next
};

}  // namespace lockstep
