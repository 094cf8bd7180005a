#include "job/async/http_client.hpp"

#include "job/async/async_limits.hpp"
#include "job/async/connect.hpp"
#include "job/async/net_stream.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"

#include <boost/asio/ssl/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

namespace lockstep {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;
using HttpParser = http::response_parser<http::string_body>;

// One exchange. Lives in the coroutine's frame; everything that refers to it ends before it.
struct Exchange {
    explicit Exchange(NetStream connected) : stream(std::move(connected)) {
        parser.header_limit(limits::kAnswerHeaderBytes);
        parser.body_limit(limits::kDaemonAnswerBytes);
    }
    NetStream stream;
    StreamDeadline deadline{stream};
    beast::flat_buffer buffer;
    HttpParser parser;
};

Error exchange_error(const Exchange& exchange, const ErrorCode& ec, const Endpoint& endpoint) {
    const std::string who = endpoint.authority();
    if (exchange.deadline.passed()) {
        return Error{Errc::timed_out, who + " did not answer in time"};
    }
    if (ec == http::error::end_of_stream || ec == net::error::eof ||
        ec == http::error::partial_message || ec == net::ssl::error::stream_truncated) {
        return Error{Errc::unavailable, who + " closed the connection"};
    }
    if (ec == http::error::body_limit || ec == http::error::header_limit) {
        return Error{Errc::exhausted, who + " answered more than fits"};
    }
    return Error{Errc::unavailable, who + ": " + ec.message()};
}

http::request<http::string_body> to_beast(const Endpoint& endpoint, ClientRequest& request) {
    http::request<http::string_body> out;
    out.version(11);
    out.method_string(request.method);
    out.target(request.target);
    out.set(http::field::host, endpoint.authority());
    out.set(http::field::user_agent, std::string{"lockstep/"} + std::string{kVersion});
    out.set(http::field::connection, "close");
    for (const auto& [name, value] : request.headers) {
        out.set(name, value);
    }
    const bool expects_body = request.method != "GET" && request.method != "HEAD";
    out.body() = std::move(request.body);
    if (expects_body || !out.body().empty()) {
        out.content_length(out.body().size());
    }
    return out;
}

ClientResponse from_beast(http::response<http::string_body>& message) {
    ClientResponse out;
    out.status = static_cast<int>(message.result_int());
    for (const auto& field : message) {
        out.headers.emplace_back(std::string{field.name_string()}, std::string{field.value()});
    }
    out.body = std::move(message.body());
    return out;
}

// Connects, sends the request and reads the header of the answer.
Task<Result<std::unique_ptr<Exchange>>> begin(Endpoint endpoint, ClientRequest request) {
    const auto deadline = Clock::now() + request.deadline;
    auto connected = co_await connect_stream(endpoint, deadline);
    if (request.unsent != nullptr) {
        *request.unsent = !connected;
    }
    LOCKSTEP_CO_TRY(connected);
    auto exchange = std::make_unique<Exchange>(std::move(*connected));
    exchange->parser.skip(request.method == "HEAD");
    if (request.head_only) {
        // Or a Content-Length would be an error: Beast 1.74 finds any larger than none at all.
        exchange->parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    }
    exchange->deadline.expires_at(deadline);
    const auto message = to_beast(endpoint, request);
    ErrorCode ec;
    co_await http::async_write(exchange->stream, message, into(ec));
    if (exchange->deadline.passed()) {
        co_return fail(exchange_error(*exchange, ec, endpoint));
    }
    // A server that refuses a body early answers and closes; that answer is worth reading.
    ErrorCode read_ec;
    co_await http::async_read_header(exchange->stream, exchange->buffer, exchange->parser,
                                     into(read_ec));
    if (read_ec) {
        co_return fail(exchange_error(*exchange, ec ? ec : read_ec, endpoint));
    }
    co_return exchange;
}

// The rest of the body, under the deadline set by begin().
Task<Result<ClientResponse>> finish(Exchange& exchange, Endpoint endpoint) {
    ErrorCode ec;
    if (!exchange.parser.is_done()) {
        co_await http::async_read(exchange.stream, exchange.buffer, exchange.parser, into(ec));
    }
    if (ec) {
        co_return fail(exchange_error(exchange, ec, endpoint));
    }
    co_return from_beast(exchange.parser.get());
}

// co_spawn wants a default for its result; an optional has one.
template <class T>
Task<void> run_into(Task<Result<T>> task, std::optional<Result<T>>& result) {
    result.emplace(co_await std::move(task));
}

template <class T>
Result<T> run_now(Task<Result<T>> task, const std::stop_token& stop = {}) {
    net::io_context io{1};
    const std::stop_callback end(stop, [&io] { io.stop(); });
    std::optional<Result<T>> result;
    std::exception_ptr problem;
    net::co_spawn(io, run_into(std::move(task), result),
                  [&problem](const std::exception_ptr& error) { problem = error; });
    io.run();
    if (!result && stop.stop_requested()) {
        return fail(Errc::cancelled, "not waited for any more");
    }
    if (!result) {
        return fail(Errc::internal, "the HTTP client ended without a result");
    }
    return std::move(*result);
}

bool same_name(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        return std::tolower(static_cast<unsigned char>(x)) ==
               std::tolower(static_cast<unsigned char>(y));
    });
}

}  // namespace

std::string Endpoint::authority() const {
    if (!unix_path.empty()) {
        return "localhost";
    }
    const bool ipv6 = host.find(':') != std::string::npos;
    return (ipv6 ? "[" + host + "]" : host) + ":" + port;
}

Result<Endpoint> parse_endpoint(std::string_view url) {
    constexpr std::string_view kHttp = "http://";
    constexpr std::string_view kHttps = "https://";
    Endpoint out;
    if (url.starts_with(kHttps)) {
        out.tls = true;
        url.remove_prefix(kHttps.size());
    } else if (url.starts_with(kHttp)) {
        url.remove_prefix(kHttp.size());
    } else if (url.find("://") != std::string_view::npos) {
        return fail(Errc::invalid, "not an http:// or https:// URL: " + printable(url));
    }
    url = url.substr(0, url.find_first_of("/?#"));
    if (url.find('@') != std::string_view::npos) {
        return fail(Errc::invalid, "a URL with a user name is not supported");
    }
    std::string_view port = "8470";
    if (url.starts_with('[')) {
        const auto end = url.find(']');
        if (end == std::string_view::npos) {
            return fail(Errc::invalid, "missing ] after the IPv6 address");
        }
        out.host = url.substr(1, end - 1);
        url.remove_prefix(end + 1);
    } else {
        out.host = url.substr(0, url.find(':'));
        url.remove_prefix(out.host.size());
    }
    if (!url.empty()) {
        if (url.front() != ':') {
            return fail(Errc::invalid, "not host:port");
        }
        port = url.substr(1);
    }
    const auto number = to_int(port);
    const bool blank = std::any_of(out.host.begin(), out.host.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == '\x7F';
    });
    if (out.host.empty() || blank) {
        return fail(Errc::invalid, "the URL names no host");
    }
    if (!number || *number < 1 || *number > 65'535) {
        return fail(Errc::invalid, "the port must be 1..65535");
    }
    out.port = std::to_string(*number);
    return out;
}

Result<std::string> parse_fingerprint(std::string_view text) {
    constexpr std::string_view kScheme = "sha256:";
    std::string out;
    for (const char c : trim(text)) {
        out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    std::string digits = out.starts_with(kScheme) ? out.substr(kScheme.size()) : out;
    std::erase(digits, ':');
    if (digits.size() != 64 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
        return fail(Errc::invalid, "not a fingerprint (sha256:…): " + printable(text));
    }
    return std::string{kScheme} + digits;
}

std::string ClientResponse::header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (same_name(key, name)) {
            return value;
        }
    }
    return {};
}

Task<Result<ClientResponse>> http_request(Endpoint endpoint, ClientRequest request) {
    const bool head_only = request.head_only;
    auto exchange = co_await begin(endpoint, std::move(request));
    LOCKSTEP_CO_TRY(exchange);
    if (head_only) {
        co_return from_beast((*exchange)->parser.get());
    }
    co_return co_await finish(**exchange, endpoint);
}

Task<Result<ClientResponse>> http_stream(Endpoint endpoint, ClientRequest request,
                                         std::function<bool(std::string_view)> on_bytes) {
    auto begun = co_await begin(endpoint, std::move(request));
    LOCKSTEP_CO_TRY(begun);
    Exchange& exchange = **begun;
    if (exchange.parser.get().result_int() != 200) {
        co_return co_await finish(exchange, endpoint);
    }
    // A stream is silent for as long as there is nothing to say; TCP keep-alive finds a dead peer.
    exchange.deadline.cancel();
    exchange.parser.body_limit(boost::none);
    std::string& body = exchange.parser.get().body();
    while (!exchange.parser.is_done()) {
        ErrorCode ec;
        co_await http::async_read_some(exchange.stream, exchange.buffer, exchange.parser, into(ec));
        if (!body.empty()) {
            const bool more = on_bytes(body);
            body.clear();
            if (!more) {
                break;
            }
        }
        if (ec) {
            co_return fail(exchange_error(exchange, ec, endpoint));
        }
    }
    co_return from_beast(exchange.parser.get());
}

Result<std::string> certificate_now(const Endpoint& endpoint, std::chrono::milliseconds deadline) {
    return run_now(look_at_certificate(endpoint, Clock::now() + deadline));
}

Result<ClientResponse> http_request_now(const Endpoint& endpoint, ClientRequest request) {
    const std::stop_token stop = request.stop;
    return run_now(http_request(endpoint, std::move(request)), stop);
}

Result<ClientResponse> http_stream_now(const Endpoint& endpoint, ClientRequest request,
                                       std::function<bool(std::string_view)> on_bytes) {
    return run_now(http_stream(endpoint, std::move(request), std::move(on_bytes)));
}

}  // namespace lockstep
