// Long work of an event loop, cut into slices, so that nobody waits for all of it.
#pragma once

#include "job/async/asio.hpp"

#include <chrono>

namespace lockstep {

// `if (slices.over()) { co_await slices.rest(); }` after each piece of work: once they have taken
// some milliseconds together, whatever else is due on the thread goes first. Of one coroutine.
class Slices {
  public:
    bool over() const { return std::chrono::steady_clock::now() - began_ >= kSlice; }
    Task<void> rest() {
        co_await net::post(net::use_awaitable);
        began_ = std::chrono::steady_clock::now();
    }

  private:
    static constexpr auto kSlice = std::chrono::milliseconds{4};
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep
