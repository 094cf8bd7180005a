#include "job/async/rest_http.hpp"

#include "job/async/async_limits.hpp"
#include "job/async/connect_first.hpp"
#include "job/async/name_lookup.hpp"
#include "job/async/net_stream.hpp"
#include "job/async/tls.hpp"
#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"
#include "job/base/version.hpp"

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using GenericSocket = net::generic::stream_protocol::socket;

constexpr std::size_t kUnixPathBytes = 107;  // sockaddr_un.sun_path with its NUL

http::request<http::string_body> to_beast(const RestAddress& address, ClientRequest& request) {
    http::request<http::string_body> out;
    out.version(11);
    out.method_string(request.method);
    out.target(request.target);
    out.set(http::field::host,
            address.unix_path.empty() ? address.endpoint.authority() : "localhost");
    out.set(http::field::user_agent, std::string{"lockstep/"} + std::string{kVersion});
    out.set(http::field::connection, "close");
    for (const auto& [name, value] : request.headers) {
        out.set(name, value);
    }
    out.body() = std::move(request.body);
    if (request.method != "GET" && request.method != "HEAD") {
        out.content_length(out.body().size());
    }
    return out;
}

}  // namespace

struct RestHttp::Exchange {
    explicit Exchange(net::io_context& io) : socket(io), lookup(io.get_executor()), timer(io) {}

    void end() {
        ErrorCode ignored;
        lookup.cancel();
        timer.cancel();
        socket.close(ignored);
        if (tls) {
            tls->close();
        }
    }

    template <class Stream>
    Task<void> say(Stream& stream, const http::request<http::string_body>& message,
                   http::response_parser<http::string_body>& parser, beast::flat_buffer& buffer,
                   ErrorCode& ec) {
        ErrorCode write_ec;
        co_await http::async_write(stream, message, into(write_ec));
        // A server that refuses early answers and closes; that answer is worth reading.
        if (!late && !stopped) {
            // The header by itself: with the body in the same buffer Beast 1.74 goes on after it
            // has found that Content-Length is over the limit, and asks for that much memory.
            co_await http::async_read_header(stream, buffer, parser, into(ec));
        }
        if (!ec && !late && !stopped && !parser.is_done()) {
            co_await http::async_read(stream, buffer, parser, into(ec));
        }
    }

    GenericSocket socket;
    std::optional<NetStream> tls;  // has taken the socket over
    NameLookup lookup;
    net::steady_timer timer;
    bool late = false;
    bool stopped = false;
};

std::string RestAddress::text() const {
    return unix_path.empty() ? (endpoint.tls ? "https://" : "http://") + endpoint.authority()
                             : "unix:" + unix_path;
}

Result<RestAddress> parse_rest_address(std::string_view url) {
    constexpr std::string_view kUnix = "unix:";
    RestAddress out;
    if (url.starts_with(kUnix)) {
        url.remove_prefix(kUnix.size());
        if (!url.starts_with('/') || url.size() > kUnixPathBytes ||
            url.find('\0') != std::string_view::npos) {
            return fail(Errc::invalid, "unix: needs an absolute path of at most " +
                                           std::to_string(kUnixPathBytes) + " bytes");
        }
        out.unix_path = url;
        return out;
    }
    auto endpoint = parse_endpoint(url);
    LOCKSTEP_TRY(endpoint);
    // parse_endpoint() has a default that is not this server's.
    const auto host_end = url.rfind(']');
    const auto colon = url.rfind(':');
    const bool has_port = colon != std::string_view::npos && colon + 1 < url.size() &&
                          url[colon + 1] != '/' &&
                          (host_end == std::string_view::npos || colon > host_end);
    if (!has_port) {
        return fail(Errc::invalid, "the URL names no port");
    }
    out.endpoint = std::move(*endpoint);
    return out;
}

Task<Status> RestHttp::connect(std::shared_ptr<Exchange> exchange) {
    std::vector<net::generic::stream_protocol::endpoint> targets;
    if (!address_.unix_path.empty()) {
        targets.emplace_back(net::local::stream_protocol::endpoint{address_.unix_path});
    } else {
        const auto found =
            co_await exchange->lookup.run(address_.endpoint.host, address_.endpoint.port);
        if (!found) {
            co_return fail(Errc::unavailable, "cannot connect to " + address_.text() + ": " +
                                                  (exchange->late ? std::string{"no answer in time"}
                                                                  : found.error().message));
        }
        targets.assign(found->begin(), found->end());
    }
    const auto over = [&exchange] { return exchange->late || exchange->stopped; };
    const auto deadline = exchange->timer.expiry();
    const ErrorCode ec = co_await connect_first(exchange->socket, targets, deadline, over);
    if (exchange->late || exchange->stopped || ec) {
        co_return fail(Errc::unavailable,
                       "cannot connect to " + address_.text() + ": " +
                           (exchange->late ? std::string{"no answer in time"} : ec.message()));
    }
    if (address_.unix_path.empty() && address_.endpoint.tls) {
        co_return co_await secure(exchange);
    }
    co_return Status{};
}

Task<Status> RestHttp::secure(std::shared_ptr<Exchange> exchange) {
    if (!tls_) {
        auto made = client_tls(!address_.endpoint.fingerprint.empty());
        LOCKSTEP_CO_TRY(made);
        tls_ = std::move(*made);
    }
    ErrorCode ec;
    const auto peer = exchange->socket.remote_endpoint(ec);
    tcp::socket taken{io_};
    if (!ec) {
        const auto protocol = peer.protocol().family() == AF_INET6 ? tcp::v6() : tcp::v4();
        UniqueFd native{exchange->socket.release(ec)};
        if (!ec) {
            taken.assign(protocol, native.get(), ec);
        }
        if (!ec) {
            native.release();
        }
    }
    if (ec) {
        co_return fail(Errc::unavailable,
                       "cannot connect to " + address_.text() + ": " + ec.message());
    }
    exchange->tls.emplace(std::move(taken));
    const Status shaken = co_await exchange->tls->connect_tls(tls_, address_.endpoint.host,
                                                              address_.endpoint.fingerprint);
    if (!shaken) {
        co_return fail(Errc::unavailable, "cannot connect to " + address_.text() + ": " +
                                              (exchange->late ? std::string{"no answer in time"}
                                                              : shaken.error().message));
    }
    co_return Status{};
}

Task<void> RestHttp::talk(std::shared_ptr<Exchange> exchange, ClientRequest request,
                          RestAnswer& answer) {
    const Status connected = co_await connect(exchange);
    if (!connected) {
        answer.response = fail(connected.error());
        co_return;
    }
    const auto message = to_beast(address_, request);
    http::response_parser<http::string_body> parser;
    parser.header_limit(limits::kAnswerHeaderBytes);
    parser.body_limit(answer_bytes_);
    beast::flat_buffer buffer;
    ErrorCode ec;
    answer.sent = true;
    if (exchange->tls) {
        co_await exchange->say(*exchange->tls, message, parser, buffer, ec);
    } else {
        co_await exchange->say(exchange->socket, message, parser, buffer, ec);
    }
    const std::string who = address_.text();
    if (exchange->late) {
        answer.response = fail(Errc::timed_out, who + " did not answer in time");
    } else if (ec == http::error::body_limit || ec == http::error::header_limit ||
               ec == http::error::buffer_overflow) {
        answer.response = fail(Errc::exhausted, who + " answered more than fits");
    } else if (ec == http::error::end_of_stream || ec == http::error::partial_message ||
               ec == net::error::eof || ec == net::ssl::error::stream_truncated) {
        answer.response = fail(Errc::unavailable, who + " closed the connection");
    } else if (ec && ec.category() == make_error_code(http::error::bad_version).category()) {
        answer.response = fail(Errc::invalid, who + " does not speak HTTP: " + ec.message());
    } else if (ec) {
        answer.response = fail(Errc::unavailable, who + ": " + ec.message());
    } else {
        ClientResponse response;
        response.status = static_cast<int>(parser.get().result_int());
        for (const auto& field : parser.get()) {
            response.headers.emplace_back(std::string{field.name_string()},
                                          std::string{field.value()});
        }
        response.body = std::move(parser.get().body());
        answer.response = std::move(response);
    }
}

Task<RestAnswer> RestHttp::request(ClientRequest request) {
    RestAnswer answer;
    if (stopped_) {
        answer.response = fail(Errc::cancelled, "stopped");
        co_return answer;
    }
    const auto exchange = std::make_shared<Exchange>(io_);
    in_flight_.insert(exchange);
    exchange->timer.expires_after(request.deadline);
    exchange->timer.async_wait([exchange](const ErrorCode& ec) {
        if (!ec) {
            exchange->late = true;
            exchange->end();
        }
    });
    co_await talk(exchange, std::move(request), answer);
    exchange->end();
    in_flight_.erase(exchange);
    if (exchange->stopped) {
        answer.response = fail(Errc::cancelled, "stopped");
    }
    co_return answer;
}

void RestHttp::stop() {
    stopped_ = true;
    for (const auto& exchange : in_flight_) {
        exchange->stopped = true;
        exchange->end();
    }
}

}  // namespace lockstep
