// HTTP/1.1 to one server, over TCP, TLS or a Unix socket, a connection for each request. For
// servers whose answers are not trusted to be small, to come, or to come whole: an answer has a
// bound and a deadline, the caller learns whether the request may have been read, and stop() ends
// all that is in flight. Call from the io_context's thread; outlives its requests, which stop() and
// the end of their coroutines make sure of.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/http_client.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

struct TlsContext;  // job/async/tls.hpp

// http://host:port, https://host:port or unix:/path.
struct RestAddress {
    Endpoint endpoint;      // of TCP and TLS
    std::string unix_path;  // not empty: a Unix socket, `endpoint` is not used
    std::string text() const;
};
// invalid: no host, no port, a path that is relative or too long for a socket.
Result<RestAddress> parse_rest_address(std::string_view url);

struct RestAnswer {
    // Whether bytes of the request may have left: then what it asks for may have happened, whatever
    // the result says.
    bool sent = false;
    // unavailable: no connection, one to another certificate than is expected, or one that ended
    // early; timed_out: the deadline; exhausted: a
    // larger answer than allowed; invalid: not HTTP; cancelled: stop().
    Result<ClientResponse> response = fail(Errc::internal, "not asked");
};

class RestHttp {
  public:
    RestHttp(net::io_context& io, RestAddress address, std::uint64_t answer_bytes)
        : io_(io), address_(std::move(address)), answer_bytes_(answer_bytes) {}
    RestHttp(const RestHttp&) = delete;
    RestHttp& operator=(const RestHttp&) = delete;

    Task<RestAnswer> request(ClientRequest request);
    // Every later request ends at once with cancelled.
    void stop();
    const RestAddress& address() const { return address_; }

  private:
    struct Exchange;
    Task<Status> connect(std::shared_ptr<Exchange> exchange);
    Task<Status> secure(std::shared_ptr<Exchange> exchange);
    Task<void> talk(std::shared_ptr<Exchange> exchange, ClientRequest request, RestAnswer& answer);

    net::io_context& io_;
    RestAddress address_;
    std::uint64_t answer_bytes_;
    std::shared_ptr<TlsContext> tls_{};  // made once: the system's authorities take a while to read
    std::set<std::shared_ptr<Exchange>> in_flight_;
    bool stopped_ = false;
};

}  // namespace lockstep
