// What everybody includes of Asio; more of it only inside job/async. Boost 1.74's headers use
// std::exchange without <utility>, so it comes first.
#pragma once

// clang-format off
#include <utility>
// clang-format on

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/seq_packet_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace lockstep {

namespace net = boost::asio;
using ErrorCode = boost::system::error_code;
// A coroutine of the control thread.
template <class T>
using Task = net::awaitable<T>;
using tcp = net::ip::tcp;

// co_await socket.async_x(…, into(ec)): an expected failure is a value, not an exception.
inline auto into(ErrorCode& ec) {
    return net::redirect_error(net::use_awaitable, ec);
}

}  // namespace lockstep
