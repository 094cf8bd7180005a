#include "job/rank/client.hpp"

#include "job/rank/rank_limits.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// A value of 1 MiB is 1.4 MB of base 64; with key and frame it fits. A SEQPACKET message must fit
// the send buffer, and the kernel caps the request at net.core.wmem_max (212,992 by default).
constexpr int kSendBuffer = 2 << 20;
constexpr std::size_t kAnswerBytes = 4U << 20U;

Errc code_of(std::string_view word) {
    constexpr std::array kCodes{Errc::invalid,   Errc::not_found, Errc::conflict,
                                Errc::denied,    Errc::exhausted, Errc::unavailable,
                                Errc::timed_out, Errc::cancelled, Errc::corrupt};
    for (const Errc code : kCodes) {
        if (to_string(code) == word) {
            return code;
        }
    }
    // A request from a generation that is over; nothing this process does can succeed any more.
    return word == "fenced" ? Errc::conflict : Errc::internal;
}

std::string text_field(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

}  // namespace

Result<std::unique_ptr<RankClient>> RankClient::connect(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path)) {
        return fail(Errc::invalid, "LOCKSTEP_SOCKET: \"" + path + "\" is no socket path");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    UniqueFd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    if (!socket) {
        return fail(errno_error("socket", errno));
    }
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
        0) {
        return fail(Errc::unavailable,
                    "the agent's socket " + path + ": " + errno_error("connect", errno).message);
    }
    return std::unique_ptr<RankClient>(new RankClient(std::move(socket)));
}

bool RankClient::send_now(std::string_view message) {
    const auto sent =
        ::send(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(message.size())) {
        return true;
    }
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
}

bool RankClient::phase(std::string_view name) {
    Json message;
    message["op"] = "phase";
    message["phase"] = name;
    return send_now(dump_json(message));
}

bool RankClient::checkpoint(std::int64_t step, const std::string& path) {
    Json message;
    message["op"] = "checkpoint";
    message["step"] = step;
    message["path"] = path;
    const bool sent =
        send_request(dump_json(message), Clock::now() + limits::kCheckpointReportPatience)
            .has_value();
    if (!sent) {
        dropped_.fetch_add(1, std::memory_order_relaxed);
    }
    return sent;
}

bool RankClient::exception(std::string_view type, std::string_view message) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    return send_now(dump_json({{"op", "exception"},
                               {"pid", ::getpid()},
                               {"final", true},
                               {"time", now.count()},
                               {"type", type},
                               {"message", message}}));
}

Result<Json> RankClient::ask(Json request, Timeout timeout) {
    const auto deadline = Clock::now() + timeout;
    const std::lock_guard lock{request_mutex_};
    const std::int64_t id = next_id_++;
    request["id"] = id;
    const Status sent = send_request(dump_json(request), deadline);
    Result<Json> answer = sent ? receive(id, deadline) : fail(sent.error());
    if (!answer) {
        // Nobody says then what a wait was for; job/model/failure.cpp takes it for an echo.
        const bool waited =
            request.contains("timeout_ms") && answer.error().code == Errc::timed_out;
        return waited ? fail(std::move(answer).error().in("missing: unknown")) : answer;
    }
    const auto ok = answer->find("ok");
    if (ok == answer->end() || !ok->is_boolean() || !ok->get<bool>()) {
        return fail(code_of(text_field(*answer, "error")), text_field(*answer, "message"));
    }
    return answer;
}

Status RankClient::wait_for(short events, Clock::time_point deadline) {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) {
            return fail(Errc::timed_out, "the agent does not answer");
        }
        pollfd item{socket_.get(), events, 0};
        const int ready = ::poll(&item, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
        if (ready > 0) {
            return {};
        }
        if (ready < 0 && errno != EINTR) {
            return fail(errno_error("poll", errno));
        }
    }
}

Status RankClient::send_request(const std::string& text, Clock::time_point deadline) {
    for (;;) {
        const auto sent =
            ::send(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            return {};
        }
        if (errno == EMSGSIZE) {
            return fail(Errc::exhausted,
                        "a message of " + std::to_string(text.size()) +
                            " bytes is larger than the socket's buffer (net.core.wmem_max)");
        }
        if (errno == EPIPE || errno == ECONNRESET) {
            return fail(Errc::unavailable, "the agent closed the connection");
        }
        if (errno != EAGAIN && errno != EINTR) {
            return fail(errno_error("send", errno));
        }
        if (const Status ready = wait_for(POLLOUT, deadline); !ready) {
            return ready;
        }
    }
}

Result<Json> RankClient::receive(std::int64_t id, Clock::time_point deadline) {
    constexpr int kReceiveFlags = MSG_DONTWAIT | MSG_TRUNC;
    buffer_.resize(kAnswerBytes);
    for (;;) {
        LOCKSTEP_TRY(wait_for(POLLIN, deadline));
        // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): MSG_DONTWAIT never blocks
        const auto got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), kReceiveFlags);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            continue;
        }
        if (got <= 0) {
            return fail(Errc::unavailable, "the agent closed the connection");
        }
        const auto size = static_cast<std::size_t>(got);
        if (size > buffer_.size()) {
            return fail(Errc::exhausted, "an answer larger than 4 MiB");
        }
        Result<Json> answer = parse_json(std::string_view{buffer_}.substr(0, size));
        if (!answer || !answer->is_object()) {
            return fail(Errc::internal, "the agent's answer is no JSON object");
        }
        // An answer to a request that timed out here may still arrive: skip it. Without an id it is
        // a refusal of a request that was too large to be read: this one.
        const auto found = answer->find("id");
        if (found != answer->end() && (found->is_null() || (found->is_number_integer() &&
                                                            found->get<std::int64_t>() == id))) {
            return answer;
        }
    }
}

}  // namespace lockstep
