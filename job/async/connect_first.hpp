// A connection to the first of several addresses that answers. The executor's thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/async_limits.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

namespace lockstep {

// Connects `socket` to the first of `targets`, in their order, that takes the connection. One that
// says nothing at all has its share of the time until `deadline`, limits::kAddressPatience at most;
// the last one has what is left. The error is the last one's, host_not_found without any targets.
// The deadline itself is the caller's to keep: from when over() is true, and the socket closed,
// nothing more is tried. All that is referred to outlives the coroutine.
template <class Socket, class Target, class Over>
Task<ErrorCode> connect_first(Socket& socket, const std::vector<Target>& targets,
                              std::chrono::steady_clock::time_point deadline, const Over& over) {
    using Clock = std::chrono::steady_clock;
    struct Turn {  // the timer's handler may be queued when its address's turn has ended
        Socket* socket;
        bool passed = false;
    };
    net::steady_timer timer{socket.get_executor()};
    ErrorCode ec = net::error::host_not_found;
    for (std::size_t i = 0; i < targets.size() && !over(); ++i) {
        ErrorCode ignored;
        socket.close(ignored);
        const auto turn = std::make_shared<Turn>(Turn{&socket});
        if (const auto behind = targets.size() - i - 1; behind > 0) {
            const auto share = (deadline - Clock::now()) / static_cast<Clock::rep>(behind + 1);
            timer.expires_after(std::min<Clock::duration>(share, limits::kAddressPatience));
            timer.async_wait([turn](const ErrorCode& cancelled) {
                if (!cancelled && turn->socket != nullptr) {
                    turn->passed = true;
                    ErrorCode closed;
                    turn->socket->close(closed);
                }
            });
        }
        co_await socket.async_connect(targets[i], into(ec));
        turn->socket = nullptr;
        timer.cancel();
        if (turn->passed) {
            ec = net::error::timed_out;  // also if it was connected when the socket was closed
        }
        if (!ec) {
            break;
        }
    }
    co_return ec;
}

}  // namespace lockstep
