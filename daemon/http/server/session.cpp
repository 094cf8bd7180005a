#include "daemon/http/server/session.hpp"

#include "daemon/http/base/content_coding.hpp"
#include "daemon/http/base/problem.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

namespace lockstep {
namespace {

constexpr std::size_t kFirstBuffer = 2048;  // most requests fit; grows to limits::kHeaderBytes
constexpr std::size_t kNoRoute = SIZE_MAX;

std::string address_text(const tcp::endpoint& endpoint) {
    auto address = endpoint.address();
    if (address.is_v6() && address.to_v6().is_v4_mapped()) {
        address = net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6());
    }
    return address.to_string();
}

}  // namespace

Session::Session(HttpServer& server, tcp::socket socket, const tcp::endpoint& peer, Surface surface,
                 std::shared_ptr<TlsContext> tls)
    : server_(server),
      socket_(std::move(socket)),
      tls_(std::move(tls)),
      surface_(surface),
      remote_(address_text(peer)),
      place_(server.enter(*this)),
      admitted_(server.admission(surface, socket_.socket()), peer.address(),
                std::chrono::steady_clock::now(),
                [this] {
                    using Why = telemetry::TurnedAway;
                    server_.metrics().turned_away(with_token_ ? Why::full : Why::stranger);
                    close();
                }),
      turn_(server.handshakes(), admission_key(peer.address())) {
    if (is_unix(socket_.socket())) {
        local_ = remote_;
        near_ = true;
        wait_at_most(server_.limits().header_timeout);
        return;
    }
    ErrorCode ec;
    const auto local = socket_.socket().local_endpoint(ec);
    if (!ec) {
        const auto text = address_text(local);
        local_ = text.find(':') == std::string::npos ? text : "[" + text + "]";
        near_ = remote_ == text || peer.address().is_loopback();
    }
    wait_at_most(server_.limits().header_timeout);
}

Session::~Session() {
    free_body();
    server_.leave(place_);
}

void Session::close() {
    deadline_ = Instant::max();
    turn_.cancel();
    socket_.close();
    if (const auto body = stream_) {
        body->close();
    }
}

void Session::wind_up() {
    if (phase_ == Phase::streaming) {
        stream_->close();
    } else if (phase_ == Phase::idle) {
        close();
    }
}

void Session::wait_at_most(std::chrono::milliseconds time) {
    deadline_ = std::chrono::steady_clock::now() + time;
}

Task<void> Session::run(std::shared_ptr<Session> self) {
    const bool ready = co_await secure();
    if (!ready) {
        co_return;
    }
    co_await serve_all(self);
    if (socket_.secure() && socket_.is_open()) {
        // What the peer reads at the end tells it that nothing was cut off.
        phase_ = Phase::idle;
        wait_at_most(server_.limits().linger_timeout);
        co_await socket_.finish();
    }
}

Task<bool> Session::secure() {
    if (!tls_) {
        co_return true;
    }
    // Nobody stands in line with nothing to say.
    ErrorCode ec;
    co_await socket_.socket().async_wait(tcp::socket::wait_read, into(ec));
    if (ec) {
        co_return false;
    }
    const bool granted = co_await turn_.wait();
    if (!granted) {
        co_return false;
    }
    const Status shaken =
        co_await socket_.accept_tls(std::exchange(tls_, nullptr), server_.handshakes().workers());
    turn_.release();
    if (shaken) {
        wait_at_most(server_.limits().header_timeout);
        co_return true;
    }
    log::debug("no TLS handshake", {{"peer", remote_}, {"what", shaken.error().message}});
    if (shaken.error().code == Errc::invalid) {
        // A client that speaks http:// gets a hint. Best effort: it fits a fresh socket's buffer.
        constexpr std::string_view kAnswer =
            "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n"
            "Content-Length: 35\r\n\r\nthis port speaks TLS: use https://\n";
        ErrorCode ignored;
        socket_.socket().write_some(net::buffer(kAnswer), ignored);
    }
    co_return false;
}

Task<void> Session::serve_all(std::shared_ptr<Session> self) {
    while (socket_.is_open()) {
        phase_ = Phase::idle;
        bool begun = false;
        std::size_t searched = 0;
        for (;;) {
            const auto end = head_end({in_.data(), in_size_}, searched);
            if (end <= limits::kHeaderBytes) {
                head_size_ = end;
                break;
            }
            if (end != std::string::npos || in_size_ >= limits::kHeaderBytes) {
                HeadProblem endless = endless_head({in_.data(), in_size_});
                co_await refuse_and_close(std::move(endless));
                co_return;
            }
            searched = in_size_;
            if (in_size_ > 0 && !std::exchange(begun, true)) {
                wait_at_most(server_.limits().header_timeout);
            }
            if (in_size_ == in_.size()) {
                in_.resize(std::clamp(in_.size() * 2, kFirstBuffer, limits::kHeaderBytes));
            }
            ErrorCode ec;
            in_size_ += co_await socket_.async_read_some(
                net::buffer(in_.data() + in_size_, in_.size() - in_size_), into(ec));
            if (ec) {
                co_return;
            }
        }
        const bool more = co_await serve(self);
        if (!more) {
            co_return;
        }
        wait_at_most(server_.limits().idle_timeout);
        if (in_size_ > 0) {
            // More requests wait in the buffer: others have their turn first.
            co_await net::post(net::use_awaitable);
        }
    }
}

Task<void> Session::refuse_and_close(HeadProblem problem) {
    server_.count(kNoRoute, problem.status, {});
    const HttpResponse response = protocol_problem(problem.status, problem.detail);
    request_.head.clear();
    const bool answered = co_await answer(response, false, false);
    if (answered) {
        co_await linger();
    }
}

Task<bool> Session::serve(std::shared_ptr<Session> self) {
    const auto started = std::chrono::steady_clock::now();
    deadline_ = Instant::max();
    phase_ = Phase::busy;
    Verdict verdict = judge();
    if (verdict.route != nullptr && !verdict.refusal &&
        std::holds_alternative<AgentUpgrade>(verdict.route->handler)) {
        verdict.refusal = upgrade();
        if (!verdict.refusal) {
            server_.count(verdict.index, 101, std::chrono::steady_clock::now() - started);
            co_return false;
        }
        verdict.close = true;
    }
    const bool head_only = request_.head.method == Method::head;
    auto change = change_of(verdict.route);
    // A handler that waits takes the request with it.
    const bool takes_gzip = accepts_gzip(request_.header("accept-encoding"));
    bool keep = request_.head.keep_alive && !verdict.close;
    bool unread = false;
    if (verdict.refusal) {
        // What is here of a refused body is dropped; what is still to come ends the connection.
        unread = verdict.close || !drop_body();
        keep = keep && !unread;
    } else {
        const BodyRead body = co_await read_body();
        if (body == BodyRead::lost) {
            co_return false;
        }
        if (body == BodyRead::no_room) {
            verdict.refusal = protocol_problem(503, "too many requests with a body at a time");
            unread = true;
            keep = false;
        }
    }
    std::optional<HttpResponse> found = std::move(verdict.refusal);
    if (!found) {
        stream_caller_ = request_.principal;  // a handler that waits takes it along
        found = call_now(verdict.route->handler);
    }
    if (!found) {
        const Handler& handler = verdict.route->handler;
        const auto* both = std::get_if<TryHandler>(&handler);
        server_.metrics().http_inflight.Increment();
        found = co_await call(both != nullptr ? both->later : std::get<SlowHandler>(handler));
        server_.metrics().http_inflight.Decrement();
    }
    HttpResponse response = std::move(*found);
    if (change) {
        note_change(std::move(*change), response);
    }
    if (response.stream) {
        server_.count(verdict.index, response.status, std::chrono::steady_clock::now() - started);
        co_await stream(self, std::move(response), head_only);
        co_return false;
    }
    keep = keep && !server_.stopping() && ++requests_ < server_.limits().requests;
    if (takes_gzip && worth_packing(response)) {
        co_await pack(response);
    }
    bool good = false;
    if (response.make && request_.head.http_10) {
        collect_body(response);  // its end would be the connection's, as if it were cut off
    }
    if (response.make) {
        good = co_await answer_in_pieces(response, keep, head_only);
    } else {
        begin_answer(response, keep, head_only, false);
        good = write_now();
        if (good && !out_.pending().empty()) {
            good = co_await write_all();
        }
    }
    server_.count(verdict.index, response.status, std::chrono::steady_clock::now() - started);
    admitted_.active();
    free_body();
    if (good && unread) {
        co_await linger();
    }
    co_return good&& keep;
}

std::optional<HttpResponse> Session::call_now(const Handler& handler) {
    try {
        if (const auto* fast = std::get_if<FastHandler>(&handler)) {
            return (*fast)(request_);
        }
        const auto* both = std::get_if<TryHandler>(&handler);
        return both == nullptr ? std::nullopt : both->now(request_);
    } catch (const std::exception& error) {
        log::error("a handler ended with an exception", {{"what", error.what()}});
    }
    return protocol_problem(500, "see the daemon's log");
}

Task<HttpResponse> Session::call(const SlowHandler& handler) {
    try {
        Task<HttpResponse> task = handler(std::move(request_));
        co_return co_await std::move(task);
    } catch (const std::exception& error) {
        log::error("a handler ended with an exception", {{"what", error.what()}});
    }
    co_return protocol_problem(500, "see the daemon's log");
}

void Session::begin_answer(const HttpResponse& response, bool keep, bool head_only, bool chunked) {
    out_.begin(response, {server_.date(), keep, head_only, chunked});
}

// Most answers fit the socket's buffer: no coroutine, no trip through the event loop.
bool Session::write_now() {
    ErrorCode ec;
    out_.consume(socket_.write_some_now(out_.pending(), ec));
    return !ec || ec == net::error::would_block || ec == net::error::try_again;
}

Task<bool> Session::write_all() {
    if (!write_now()) {
        co_return false;
    }
    for (auto rest = out_.pending(); !rest.empty(); rest = out_.pending()) {
        // Per piece: who reads on, however slowly, is served; who stops is not.
        wait_at_most(server_.limits().write_timeout);
        ErrorCode ec;
        const std::size_t sent = co_await socket_.async_write_some(rest, into(ec));
        out_.consume(sent);
        if (ec) {
            co_return false;
        }
    }
    deadline_ = Instant::max();
    co_return true;
}

Task<bool> Session::answer(const HttpResponse& response, bool keep, bool head_only) {
    begin_answer(response, keep, head_only, false);
    co_return co_await write_all();
}

}  // namespace lockstep
