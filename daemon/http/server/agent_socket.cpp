#include "daemon/http/server/agent_socket.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

bool would_block(const ErrorCode& ec) {
    return ec == net::error::would_block || ec == net::error::try_again;
}

}  // namespace

AgentSocket::AgentSocket(HttpServer& server)
    : server_(server),
      frames_(limits::kHelloBytes),
      quiet_since_(std::chrono::steady_clock::now()),
      began_(quiet_since_) {}

AgentSocket::~AgentSocket() = default;

void AgentSocket::send(WsMessage message) {
    queue(message.binary ? ws::Opcode::binary : ws::Opcode::text,
          std::make_shared<const std::string>(std::move(message.bytes)));
}

void AgentSocket::send_shared(std::shared_ptr<const std::string> text) {
    queue(ws::Opcode::text, std::move(text));
}

void AgentSocket::queue(ws::Opcode opcode, std::shared_ptr<const std::string> bytes) {
    if (ended_ || closing_) {
        return;
    }
    const ws::Head head = ws::head_of(opcode, bytes->size());
    add(head, std::move(bytes));
    if (queued_bytes_ > limits::kAgentQueueBytes) {
        log::warn("agent does not read what it is sent; closing its connection", {});
        abort();
        return;
    }
    write_next();
}

void AgentSocket::add(ws::Head head, std::shared_ptr<const std::string> bytes) {
    queue_.push_back({head, std::move(bytes)});
    queued_bytes_ += queue_.back().cost();
}

void AgentSocket::close(std::string reason) {
    if (std::exchange(closing_, true)) {
        return;
    }
    // The reader sees the peer's answer, or look() ends it.
    quiet_since_ = std::chrono::steady_clock::now();
    reason_ = printable(reason);
    write_next();
}

void AgentSocket::say_close(std::uint16_t code, std::string_view reason) {
    closing_ = true;
    if (std::exchange(close_sent_, true)) {
        return;
    }
    auto bytes = std::make_shared<const std::string>(ws::close_payload(code, reason));
    const ws::Head head = ws::head_of(ws::Opcode::close, bytes->size());
    add(head, std::move(bytes));
    write_next();
}

void AgentSocket::abort() {
    ended_ = true;
    closing_ = true;
    if (stream_) {
        stream_->close();
    }
}

void AgentSocket::look(std::chrono::steady_clock::time_point now) {
    const auto silence = server_.limits().agent_silence;
    if (closing_) {
        if (open_ && now - quiet_since_ >= server_.limits().agent_close_timeout) {
            abort();
        }
    } else if (open_ && !introduced_ && now - began_ >= server_.limits().hello_timeout) {
        // Once more, for the same reason as below: what it said may not have been read yet.
        if (std::exchange(late_, true)) {
            abort();
        }
    } else if (std::exchange(heard_, false)) {
        quiet_since_ = now;
        asked_ = false;
    } else if (asked_ && now - asked_at_ >= silence / 2) {
        abort();
    } else if (!asked_ && now - quiet_since_ >= silence / 2) {
        // Nobody is given up unasked: it may be the daemon that stood still, and they all spoke.
        asked_ = true;
        asked_at_ = now;
        queue(ws::Opcode::ping, std::make_shared<const std::string>());
    }
}

// What goes with the next write; the rest are empty.
AgentSocket::Pieces AgentSocket::pieces() const {
    Pieces out{};
    std::size_t gone = sent_;
    std::size_t next = 0;
    for (const Queued& one : queue_) {
        const std::string_view head = one.head.view();
        const std::size_t of_head = std::min(gone, head.size());
        out[next++] = net::buffer(head.data() + of_head, head.size() - of_head);
        gone -= of_head;
        out[next++] = net::buffer(one.bytes->data() + gone, one.bytes->size() - gone);
        gone = 0;
        if (next == out.size()) {
            break;
        }
    }
    return out;
}

void AgentSocket::written(std::size_t bytes) {
    sent_ += bytes;
    while (!queue_.empty()) {
        const Queued& front = queue_.front();
        const std::size_t size = front.head.size + front.bytes->size();
        if (sent_ < size) {
            return;
        }
        sent_ -= size;
        queued_bytes_ -= front.cost();
        queue_.pop_front();
    }
}

// As much as the socket takes at once; a trip through the event loop only for the rest.
void AgentSocket::write_next() {
    while (open_ && !writing_ && !ended_) {
        if (queue_.empty()) {
            if (closing_ && !close_sent_) {
                say_close(ws::kNormal, reason_);
            }
            return;
        }
        const Pieces now = pieces();
        ErrorCode ec;
        const std::size_t sent = stream_->write_some_now(now, ec);
        if (!ec) {
            written(sent);
            continue;
        }
        if (!would_block(ec)) {
            abort();
            return;
        }
        writing_ = true;
        stream_->async_write_some(
            now, [self = shared_from_this()](const ErrorCode& failed, std::size_t size) {
                self->writing_ = false;
                if (failed) {
                    self->abort();
                } else {
                    self->written(size);
                    self->write_next();
                }
            });
    }
}

void AgentSocket::look_who(const AgentSession& session) {
    if (!introduced_ && session.introduced()) {
        introduced_ = true;
        frames_.allow(limits::kAgentFrameBytes);
    }
}

bool AgentSocket::take(std::span<char> bytes, AgentSession& session) {
    heard_ = true;
    frames_.feed(bytes);
    while (!ended_) {
        look_who(session);
        using Kind = ws::FrameReader::Kind;
        const ws::FrameReader::Event event = frames_.next();
        switch (event.kind) {
            case Kind::none:
                return true;
            // Once CLOSE is due nothing counts that comes before the peer's: it is not answered,
            // and an agent that keeps it says it again.
            case Kind::text:
                if (!closing_) {
                    session.on_text(event.payload);
                }
                break;
            case Kind::binary:
                if (!closing_) {
                    session.on_binary(event.payload);
                }
                break;
            case Kind::ping:
                queue(ws::Opcode::pong, std::make_shared<const std::string>(event.payload));
                break;
            case Kind::pong:
                break;
            case Kind::close:
                // With its own code, if it gave one (RFC 6455 §5.5.1).
                say_close(event.payload.empty()
                              ? ws::kNormal
                              : static_cast<std::uint16_t>(
                                    static_cast<unsigned char>(event.payload[0]) << 8U |
                                    static_cast<unsigned char>(event.payload[1])),
                          "");
                return false;
            case Kind::broken:
                say_close(event.code, "");
                return false;
        }
    }
    return false;
}

Task<void> AgentSocket::read_all(AgentSession& session, std::string received) {
    bool more = take(received, session);
    // With TLS a record has to lie somewhere until it is whole; else nobody has a buffer of its own
    // while it is quiet.
    std::string own;
    if (stream_->secure()) {
        own.resize(4U << 10U);
    }
    while (more && !ended_) {
        ErrorCode ec;
        std::span<char> room{own};
        std::size_t size = 0;
        if (own.empty()) {
            co_await stream_->socket().async_wait(tcp::socket::wait_read, into(ec));
            room = server_.agent_room();
            size = ec ? 0 : stream_->socket().read_some(net::buffer(room.data(), room.size()), ec);
            if (would_block(ec)) {
                continue;
            }
        } else {
            size = co_await stream_->async_read_some(net::buffer(own.data(), own.size()), into(ec));
        }
        more = !ec && take(room.first(size), session);
    }
}

Task<void> AgentSocket::run([[maybe_unused]] std::shared_ptr<AgentSocket> self, NetStream socket,
                            std::string key, std::string received,
                            std::shared_ptr<AgentSession> session) {
    const auto place = server_.enter(*this);
    stream_.emplace(std::move(socket));
    if (!ended_) {
        const std::string answer =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: " +
            ws::accept_of(key) + "\r\nServer: lockstepd/" + std::string{kVersion} + "\r\n\r\n";
        queue_.push_front({{}, std::make_shared<const std::string>(answer)});
        queued_bytes_ += queue_.front().cost();
        open_ = true;
        write_next();
        co_await read_all(*session, std::move(received));
    }
    abort();
    server_.leave(place);
    session->on_closed();
}

}  // namespace lockstep
