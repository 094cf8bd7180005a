// Unix stream sockets where TCP's are expected: HTTP and WebSocket between programs of one user on
// one machine. A port of the loopback is anybody's who binds it first; this is a file that only its
// user reaches, and each end asks the kernel who the other one is (SO_PEERCRED, unix(7)). Asio's
// tcp::socket carries the descriptor: reading, writing and closing are the same, its addresses mean
// nothing. Call from the io_context's thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <boost/asio/local/stream_protocol.hpp>

#include <chrono>
#include <filesystem>

namespace lockstep {

// A listener at `path`, mode 0600; what was there is replaced, so hold a lock on the folder. Paths
// of any length. unavailable: why not.
Result<net::local::stream_protocol::acceptor> listen_unix(net::io_context& io,
                                                          const std::filesystem::path& path,
                                                          int backlog);
// denied: another user than this one's and root listens there; unavailable: nobody does, or it has
// not taken the connection in time.
Task<Result<tcp::socket>> connect_unix(std::filesystem::path path,
                                       std::chrono::steady_clock::time_point deadline);
// The accepted connection as a tcp::socket; denied: it is another user's.
Result<tcp::socket> take_unix(net::io_context& io, net::local::stream_protocol::socket accepted);
bool is_unix(const tcp::socket& socket);

}  // namespace lockstep
