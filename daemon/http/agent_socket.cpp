#include "daemon/http/agent_socket.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <deque>
#include <utility>

namespace lockstep {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;

// Agents beat once a second; half of this without a byte brings a ping, all of it the end. Control
// calls an agent silent long before (limits::kAgentSilence); this only frees the descriptor.
constexpr auto kSilence = std::chrono::seconds{20};
// The closing handshake and the upgrade itself.
constexpr auto kHandshake = std::chrono::seconds{5};
constexpr std::size_t kReasonBytes = 123;

}  // namespace

struct AgentSocket::Impl {
    using Stream = websocket::stream<NetStream>;
    std::unique_ptr<Stream> stream;
    bool open = false;     // upgraded, not yet ended
    bool writing = false;  // a write or a close is in flight
    bool closing = false;  // close() was called
    bool ended = false;
    std::string reason;
    struct Queued {
        bool binary = false;
        std::shared_ptr<const std::string> bytes;
    };
    std::deque<Queued> queue;  // the front is in flight while `writing`
    std::size_t queued_bytes = 0;
};

AgentSocket::AgentSocket(HttpServer& server) : server_(server), impl_(std::make_unique<Impl>()) {}

AgentSocket::~AgentSocket() = default;

void AgentSocket::send(WsMessage message) {
    queue(message.binary, std::make_shared<const std::string>(std::move(message.bytes)));
}

void AgentSocket::send_shared(std::shared_ptr<const std::string> text) {
    queue(false, std::move(text));
}

void AgentSocket::queue(bool binary, std::shared_ptr<const std::string> bytes) {
    if (impl_->ended || impl_->closing) {
        return;
    }
    impl_->queued_bytes += bytes->size();
    if (impl_->queued_bytes > limits::kAgentQueueBytes) {
        log::warn("agent does not read what it is sent; closing its connection", {});
        abort();
        return;
    }
    impl_->queue.push_back({binary, std::move(bytes)});
    write_next();
}

void AgentSocket::close(std::string reason) {
    if (std::exchange(impl_->closing, true)) {
        return;
    }
    impl_->reason = printable(reason).substr(0, kReasonBytes);
    write_next();
}

void AgentSocket::abort() {
    impl_->ended = true;
    impl_->closing = true;
    if (impl_->stream) {
        impl_->stream->next_layer().close();
    }
}

void AgentSocket::write_next() {
    Impl& impl = *impl_;
    if (!impl.open || impl.writing || impl.ended) {
        return;
    }
    auto self = shared_from_this();
    if (!impl.queue.empty()) {
        impl.writing = true;
        const Impl::Queued& message = impl.queue.front();
        impl.stream->binary(message.binary);
        impl.stream->async_write(net::buffer(*message.bytes),
                                 [self](const ErrorCode& ec, std::size_t) {
                                     Impl& state = *self->impl_;
                                     state.writing = false;
                                     state.queued_bytes -= state.queue.front().bytes->size();
                                     state.queue.pop_front();
                                     if (ec) {
                                         self->abort();
                                     } else {
                                         self->write_next();
                                     }
                                 });
        return;
    }
    if (impl.closing) {
        impl.writing = true;
        // The reader sees the peer's answer, or the time-out, and ends.
        websocket::close_reason why{websocket::close_code::normal};
        why.reason.assign(impl.reason.data(), impl.reason.size());
        impl.stream->async_close(why, [self](const ErrorCode&) { self->abort(); });
    }
}

Task<void> AgentSocket::read_all(AgentSession& session) {
    // Shared by all messages; 4,000 quiet agents hold a few KiB each.
    constexpr std::size_t kKeepBytes = 64U << 10U;
    beast::flat_buffer buffer;
    while (!impl_->ended) {
        ErrorCode ec;
        co_await impl_->stream->async_read(buffer, into(ec));
        if (ec) {
            co_return;
        }
        const auto data = buffer.data();
        const std::string_view bytes{static_cast<const char*>(data.data()), data.size()};
        if (impl_->stream->got_binary()) {
            session.on_binary(bytes);
        } else {
            session.on_text(bytes);
        }
        buffer.consume(bytes.size());
        if (buffer.capacity() > kKeepBytes) {
            buffer.shrink_to_fit();
        }
    }
}

Task<void> AgentSocket::run([[maybe_unused]] std::shared_ptr<AgentSocket> self, NetStream socket,
                            std::string received, std::shared_ptr<AgentSession> session) {
    const auto place = server_.enter(*this);
    impl_->stream = std::make_unique<Impl::Stream>(std::move(socket));
    auto& stream = *impl_->stream;
    stream.read_message_max(limits::kAgentFrameBytes);
    stream.auto_fragment(false);
    const websocket::stream_base::timeout patience{kHandshake, kSilence, true};
    stream.set_option(patience);
    auto decorate = [](websocket::response_type& response) {
        response.set(http::field::server, "lockstepd/" + std::string{kVersion});
    };
    stream.set_option(websocket::stream_base::decorator(decorate));
    ErrorCode ec;
    if (!impl_->ended) {
        co_await stream.async_accept(net::buffer(received), into(ec));
        received = std::string{};
        if (!ec && !impl_->ended) {
            impl_->open = true;
            write_next();
            co_await read_all(*session);
        }
    }
    abort();
    server_.leave(place);
    session->on_closed();
}

}  // namespace lockstep
