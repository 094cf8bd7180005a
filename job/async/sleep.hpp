// Waiting inside a coroutine of the control thread.
#pragma once

#include "job/async/asio.hpp"

#include <chrono>

namespace lockstep {

// Sleeps; returns false when `timer` was cancelled (somebody wants the owner to stop or to look).
inline Task<bool> sleep_on(net::steady_timer& timer, std::chrono::steady_clock::duration time) {
    timer.expires_after(time);
    ErrorCode ec;
    co_await timer.async_wait(into(ec));
    co_return !ec;
}

}  // namespace lockstep
