#include "job/async/connect.hpp"

#include "job/async/connect_first.hpp"
#include "job/async/name_lookup.hpp"
#include "job/async/tls.hpp"
#include "job/async/unix_socket.hpp"

#include <memory>
#include <string>
#include <utility>

namespace lockstep {
namespace {

// What the coroutine and the deadline's handler share. The handler may already be queued when the
// coroutine ends, so neither may own it alone.
struct Attempt {
    explicit Attempt(const net::any_io_executor& executor)
        : socket(executor), lookup(executor), timer(executor) {}

    tcp::socket socket;
    NameLookup lookup;
    net::steady_timer timer;
    bool late = false;
};

void start_deadline(const std::shared_ptr<Attempt>& attempt,
                    std::chrono::steady_clock::time_point deadline) {
    attempt->timer.expires_at(deadline);
    attempt->timer.async_wait([attempt](const ErrorCode& ec) {
        if (ec) {
            return;
        }
        attempt->late = true;
        attempt->lookup.cancel();
        ErrorCode ignored;
        attempt->socket.close(ignored);
    });
}

Error no_tls(const Endpoint& endpoint, bool late, const Error& error) {
    return Error{error.code, "no TLS with " + endpoint.authority() + ": " +
                                 (late ? std::string{"no answer in time"} : error.message)};
}

}  // namespace

Task<Result<tcp::socket>> connect_tcp(Endpoint endpoint,
                                      std::chrono::steady_clock::time_point deadline) {
    if (!endpoint.unix_path.empty()) {
        co_return co_await connect_unix(endpoint.unix_path, deadline);
    }
    const auto attempt = std::make_shared<Attempt>(co_await net::this_coro::executor);
    start_deadline(attempt, deadline);
    auto addresses = co_await attempt->lookup.run(endpoint.host, endpoint.port);
    if (!addresses) {
        attempt->timer.cancel();
        co_return fail(std::move(addresses.error()));
    }
    if (endpoint.may_connect) {
        std::erase_if(*addresses, [&](const tcp::endpoint& address) {
            return !endpoint.may_connect(address.address());
        });
        if (addresses->empty()) {
            attempt->timer.cancel();
            co_return fail(Errc::invalid,
                           endpoint.authority() + " has no address that may be connected to");
        }
    }
    const auto over = [&attempt] { return attempt->late; };
    const ErrorCode ec = co_await connect_first(attempt->socket, *addresses, deadline, over);
    attempt->timer.cancel();
    if (attempt->late || ec) {
        co_return fail(Errc::unavailable,
                       "cannot connect to " + endpoint.authority() + ": " +
                           (attempt->late ? std::string{"no answer in time"} : ec.message()));
    }
    ErrorCode ignored;
    attempt->socket.set_option(tcp::no_delay(true), ignored);
    attempt->socket.set_option(net::socket_base::keep_alive(true), ignored);
    co_return std::move(attempt->socket);
}

Task<Result<NetStream>> connect_stream(Endpoint endpoint,
                                       std::chrono::steady_clock::time_point deadline) {
    auto socket = co_await connect_tcp(endpoint, deadline);
    LOCKSTEP_CO_TRY(socket);
    NetStream stream{std::move(*socket)};
    if (!endpoint.tls) {
        co_return stream;
    }
    auto context = client_tls(!endpoint.fingerprint.empty());
    LOCKSTEP_CO_TRY(context);
    StreamDeadline until{stream};
    until.expires_at(deadline);
    const Status shaken =
        co_await stream.connect_tls(std::move(*context), endpoint.host, endpoint.fingerprint);
    until.cancel();
    if (shaken) {
        co_return stream;
    }
    const Errc code = shaken.error().code;
    if (code == Errc::denied) {
        co_return fail(code,
                       "the daemon at " + endpoint.authority() + " " + shaken.error().message);
    }
    co_return fail(no_tls(endpoint, until.passed(), shaken.error()));
}

Task<Result<std::string>> look_at_certificate(Endpoint endpoint,
                                              std::chrono::steady_clock::time_point deadline) {
    auto socket = co_await connect_tcp(endpoint, deadline);
    LOCKSTEP_CO_TRY(socket);
    NetStream stream{std::move(*socket)};
    auto context = client_tls(true);
    LOCKSTEP_CO_TRY(context);
    StreamDeadline until{stream};
    until.expires_at(deadline);
    auto shown = co_await stream.look_tls(std::move(*context), endpoint.host);
    until.cancel();
    stream.close();
    if (!shown) {
        co_return fail(no_tls(endpoint, until.passed(), shown.error()));
    }
    co_return shown;
}

}  // namespace lockstep
