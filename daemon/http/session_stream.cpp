// Answers that come piece by piece: event streams and followed logs.
#include "daemon/http/problem.hpp"
#include "daemon/http/session.hpp"

#include <array>
#include <charconv>
#include <utility>

namespace lockstep {
namespace {

void append_chunk_size(std::string& out, std::size_t size) {
    std::array<char, 24> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), size, 16).ptr;
    out.append(text.data(), end).append("\r\n");
}

}  // namespace

Task<void> Session::stream(std::shared_ptr<Session> self, HttpResponse response, bool head_only) {
    const std::shared_ptr<BodyStream> body = response.stream;
    auto& streams = server_.counters().streams;
    if (streams >= server_.limits().streams) {
        body->close();
        const HttpResponse full = problem(Error{Errc::exhausted, "too many streams are open"});
        co_await answer(full, false, head_only);
        co_return;
    }
    const bool chunked = !request_.head.http_10;
    build_head(response, false, chunked);
    std::size_t sent = 0;
    constexpr std::string_view kNothing;
    bool good = write_now(kNothing, sent);
    if (good) {
        good = co_await write_rest(kNothing, sent);
    }
    if (head_only) {
        body->close();
        co_return;
    }
    server_.metrics().stream_clients.Set(static_cast<double>(++streams));
    stream_ = body;
    phase_ = Phase::streaming;
    in_size_ = 0;
    watch_for_end(self, body);
    while (good) {
        auto piece = co_await body->next();
        if (!piece || !socket_.is_open() || server_.stopping()) {
            break;
        }
        if (piece->empty()) {
            continue;
        }
        out_.clear();
        if (chunked) {
            append_chunk_size(out_, piece->size());
            *piece += "\r\n";
        }
        good = write_now(*piece, sent);
        if (good) {
            good = co_await write_rest(*piece, sent);
        }
    }
    if (good && chunked && socket_.is_open()) {
        out_ = "0\r\n\r\n";
        good = write_now(kNothing, sent);
        if (good && sent < out_.size()) {
            good = co_await write_rest(kNothing, sent);
        }
    }
    using End = telemetry::StreamEnd;
    const bool slow = body->lagged() || (!good && !socket_.is_open());
    server_.metrics().stream_ended(server_.stopping() ? End::stopping
                                   : slow             ? End::slow
                                                      : End::client);
    server_.metrics().stream_clients.Set(static_cast<double>(--streams));
    stream_.reset();
    phase_ = Phase::idle;  // the pending read keeps the session a little longer: see wind_up()
    body->close();
    close();
}

bool Session::stream_forbidden() const {
    return phase_ == Phase::streaming && with_token_ &&
           !server_.authenticator()(token_.last_hash());
}

void Session::watch_for_end(const std::shared_ptr<Session>& self,
                            const std::shared_ptr<BodyStream>& body) {
    drop_.resize(512);
    socket_.async_read_some(net::buffer(drop_), [self, body](const ErrorCode& ec, std::size_t) {
        if (ec) {
            body->close();
        } else {
            self->watch_for_end(self, body);
        }
    });
}

}  // namespace lockstep
