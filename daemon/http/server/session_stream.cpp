// Answers that come piece by piece: event streams, followed logs, and bodies too large to be kept.
#include "daemon/http/base/problem.hpp"
#include "daemon/http/server/session.hpp"
#include "job/base/log.hpp"

#include <deque>
#include <exception>
#include <utility>

namespace lockstep {

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
    begin_answer(response, keep, head_only, true);
    std::deque<std::string> waiting;  // out_ has the first one
    bool good = true;
    bool begun = false;
    bool failed = false;
    const auto drop_first = [&] {
        std::string gone = std::move(waiting.front());
        waiting.pop_front();
        if (!waiting.empty()) {
            out_.put(waiting.front());
        }
        return gone;
    };
    const auto put = [&](std::string bytes) -> std::string {
        if (!good || bytes.empty()) {
            return bytes;  // the client has gone
        }
        begun = true;
        waiting.push_back(std::move(bytes));
        if (waiting.size() == 1) {
            out_.put(waiting.front());
        }
        std::string spare;
        while (!waiting.empty()) {
            good = write_now();
            if (!good || !out_.pending().empty()) {
                break;
            }
            spare = drop_first();
        }
        return spare;
    };
    try {
        if (!head_only) {
            response.make(put);
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
    while (good && !waiting.empty()) {
        good = co_await write_all();
        drop_first();
    }
    if (!good) {
        co_return false;
    }
    out_.end();
    co_return co_await write_all();
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
    begin_answer(response, false, head_only, chunked);
    bool good = co_await write_all();
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
        out_.put(*piece);
        good = co_await write_all();
    }
    if (good && socket_.is_open()) {
        out_.end();
        good = co_await write_all();
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
