// Answers that come piece by piece: event streams, followed logs, and bodies too large to be kept.
#include "daemon/http/base/problem.hpp"
#include "daemon/http/server/session.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <exception>
#include <utility>

namespace lockstep {
namespace {

void append_chunk_size(std::string& out, std::size_t size) {
    std::array<char, 24> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), size, 16).ptr;
    out.append(text.data(), end).append("\r\n");
}

// What a socket has not taken yet of an answer in pieces.
struct Piece {
    std::string frame;  // what goes before it: the head of the answer, the size of the chunk
    std::string bytes;
    std::size_t sent = 0;  // of both
};

}  // namespace

void Session::collect_body(HttpResponse& response) {
    std::string body;
    try {
        response.make([&](std::string bytes) {
            body += bytes;
            return bytes;
        });
    } catch (const std::exception& error) {
        log::error("a body could not be made", {{"what", error.what()}});
        response = protocol_problem(500, "see the daemon's log");
        return;
    }
    response.body = std::move(body);
    response.make = {};
}

Task<bool> Session::answer_in_pieces(HttpResponse& response, bool keep, bool head_only) {
    build_head(response, keep, true);
    std::deque<Piece> waiting;
    std::string frame = std::move(out_);
    bool good = true;
    bool begun = false;
    bool failed = false;
    const auto send_now = [&](std::string bytes) {
        waiting.push_back({std::exchange(frame, "\r\n"), std::move(bytes), 0});
        std::string spare;
        while (good && !waiting.empty()) {
            Piece& one = waiting.front();
            const std::size_t in_frame = std::min(one.sent, one.frame.size());
            const std::size_t in_bytes = one.sent - in_frame;
            const std::array<net::const_buffer, 2> rest{
                net::buffer(one.frame.data() + in_frame, one.frame.size() - in_frame),
                net::buffer(one.bytes.data() + in_bytes, one.bytes.size() - in_bytes)};
            ErrorCode ec;
            one.sent += socket_.write_some_now(rest, ec);
            if (ec == net::error::would_block || ec == net::error::try_again) {
                break;
            }
            good = !ec;
            if (one.sent == one.frame.size() + one.bytes.size()) {
                spare = std::move(one.bytes);
                waiting.pop_front();
            }
        }
        return spare;
    };
    const auto put = [&](std::string bytes) -> std::string {
        if (!good || bytes.empty()) {
            return bytes;  // the client has gone
        }
        append_chunk_size(frame, bytes.size());
        begun = true;
        return send_now(std::move(bytes));
    };
    try {
        if (!head_only) {
            response.make(put);
            frame += "0\r\n\r\n";
        }
    } catch (const std::exception& error) {
        log::error("a body could not be made", {{"what", error.what()}});
        failed = true;
    }
    if (failed) {
        response = protocol_problem(500, "see the daemon's log");
        if (!begun) {
            co_return co_await answer(response, keep, head_only);
        }
        co_return false;  // cut off: the client sees that this is not all
    }
    send_now({});
    while (good && !waiting.empty()) {
        out_ = std::move(waiting.front().frame);
        const std::string bytes = std::move(waiting.front().bytes);
        const std::size_t sent = waiting.front().sent;
        waiting.pop_front();
        good = co_await write_rest(bytes, sent);
    }
    co_return good;
}

Task<void> Session::stream(std::shared_ptr<Session> self, HttpResponse response, bool head_only) {
    const std::shared_ptr<BodyStream> body = response.stream;
    if (const int full = server_.begin_stream(stream_caller_); full != 0) {
        body->close();
        Error error{Errc::exhausted, "too many streams are open"};
        if (full == 429) {
            error.message = "you have " + std::to_string(server_.limits().user_streams) +
                            " streams open already: close one";
            error.retry_after_s = 1;
        }
        const HttpResponse refused = problem(error, full);
        co_await answer(refused, false, head_only);
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
        server_.end_stream(stream_caller_);
        body->close();
        co_return;
    }
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
    server_.end_stream(stream_caller_);
    stream_.reset();
    phase_ = Phase::idle;  // the pending read keeps the session a little longer: see wind_up()
    body->close();
    close();
}

bool Session::stream_forbidden() const {
    if (phase_ != Phase::streaming || !with_token_) {
        return false;
    }
    const Authenticator& owner =
        with_cookie_ ? server_.settings().by_cookie : server_.authenticator();
    return !owner(token_.last_hash());
}

void Session::watch_for_end(const std::shared_ptr<Session>& self,
                            const std::shared_ptr<BodyStream>& body) {
    const std::span<char> waste = server_.waste_room();
    const auto room = net::buffer(waste.data(), waste.size());
    socket_.async_read_some(room, [self, body](const ErrorCode& ec, std::size_t) {
        if (ec) {
            body->close();
        } else {
            self->watch_for_end(self, body);
        }
    });
}

}  // namespace lockstep
