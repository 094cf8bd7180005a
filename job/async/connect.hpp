// Opening a connection to a daemon, TCP or TLS, with a deadline; shared by the HTTP and WebSocket
// clients. Call from the io_context's thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/http_client.hpp"
#include "job/async/net_stream.hpp"
#include "job/base/result.hpp"

#include <chrono>

namespace lockstep {

// A connected socket with TCP_NODELAY and keep-alive. A numeric host is never looked up; a name is
// tried address by address, and one of them that says nothing leaves time for the others.
// unavailable: no address, refused, unreachable or not in time (nothing has been sent, so nothing
// can have happened); invalid: Endpoint::may_connect refuses them all. With a Unix path as
// connect_unix().
Task<Result<tcp::socket>> connect_tcp(Endpoint endpoint,
                                      std::chrono::steady_clock::time_point deadline);
// The same and, for https, the TLS handshake. denied: the daemon shows another certificate than the
// endpoint's, or one that nobody vouches for.
Task<Result<NetStream>> connect_stream(Endpoint endpoint,
                                       std::chrono::steady_clock::time_point deadline);

// The fingerprint of the certificate that is shown there, trusted or not.
Task<Result<std::string>> look_at_certificate(Endpoint endpoint,
                                              std::chrono::steady_clock::time_point deadline);

}  // namespace lockstep
