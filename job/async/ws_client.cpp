#include "job/async/ws_client.hpp"

#include "job/async/async_limits.hpp"
#include "job/async/connect.hpp"
#include "job/async/unix_socket.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <utility>

namespace lockstep {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;

constexpr std::size_t kDetailBytes = 256;

// ": " and what an RFC 9457 answer gives as the reason.
std::string detail_of(const std::string& body) {
    const auto problem = parse_json(body);
    if (!problem || !problem->is_object()) {
        return {};
    }
    const auto detail = problem->find("detail");
    if (detail == problem->end() || !detail->is_string()) {
        return {};
    }
    const auto& text = detail->get_ref<const std::string&>();
    return ": " + printable(std::string_view{text}.substr(0, kDetailBytes));
}

}  // namespace

struct WsClient::Impl {
    // One connection; coroutines that wait on it share it, so connect() may replace it and the
    // client may go while they unwind.
    struct Connection {
        explicit Connection(NetStream connected) : stream(std::move(connected)) {}
        websocket::stream<NetStream> stream;
        beast::flat_buffer buffer;
    };
    std::shared_ptr<Connection> connection;
    bool closed = false;
};

WsClient::WsClient(net::io_context&) : impl_(std::make_unique<Impl>()) {}

WsClient::~WsClient() {
    close();
}

Task<Status> WsClient::connect(Endpoint endpoint, std::string target, std::string bearer,
                               std::chrono::milliseconds deadline) {
    close();
    impl_->closed = false;
    const auto until = std::chrono::steady_clock::now() + deadline;
    auto connected = co_await connect_stream(endpoint, until);
    LOCKSTEP_CO_TRY(connected);
    if (impl_->closed) {
        co_return fail(Errc::unavailable, "closed while connecting");
    }
    auto connection = std::make_shared<Impl::Connection>(std::move(*connected));
    impl_->connection = connection;
    auto& stream = connection->stream;
    stream.read_message_max(limits::kAgentFrameBytes);
    stream.auto_fragment(false);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    const websocket::stream_base::timeout patience{std::max(left, std::chrono::milliseconds{1}),
                                                   limits::kDaemonSilence, true};
    stream.set_option(patience);
    auto decorate = [token = std::move(bearer)](websocket::request_type& request) {
        request.set(http::field::authorization, "Bearer " + token);
        request.set(http::field::user_agent, "lockstep-agent/" + std::string{kVersion});
    };
    stream.set_option(websocket::stream_base::decorator(std::move(decorate)));
    const std::string host = endpoint.authority();
    websocket::response_type answer;
    ErrorCode ec;
    co_await stream.async_handshake(answer, host, target, into(ec));
    if (!ec) {
        co_return Status{};
    }
    if (impl_->connection == connection) {
        impl_->connection.reset();
    }
    if (ec == websocket::error::upgrade_declined) {
        const unsigned status = answer.result_int();
        const bool denied = status == 401 || status == 403;
        co_return fail(denied ? Errc::denied : Errc::unavailable,
                       host + " refused the agent connection with status " +
                           std::to_string(status) + detail_of(answer.body()));
    }
    co_return fail(Errc::unavailable, host + ": " + ec.message());
}

Task<Result<WsMessage>> WsClient::read() {
    const auto connection = impl_->connection;
    if (!connection) {
        co_return fail(Errc::unavailable, "not connected");
    }
    ErrorCode ec;
    co_await connection->stream.async_read(connection->buffer, into(ec));
    if (ec) {
        co_return fail(Errc::unavailable, ec == websocket::error::closed
                                              ? std::string{"the daemon closed the connection"}
                                              : ec.message());
    }
    WsMessage message;
    message.binary = connection->stream.got_binary();
    const auto data = connection->buffer.data();
    message.bytes.assign(static_cast<const char*>(data.data()), data.size());
    connection->buffer.consume(data.size());
    co_return message;
}

Task<Status> WsClient::write(WsMessage message) {
    const auto connection = impl_->connection;
    if (!connection) {
        co_return fail(Errc::unavailable, "not connected");
    }
    connection->stream.binary(message.binary);
    ErrorCode ec;
    co_await connection->stream.async_write(net::buffer(message.bytes), into(ec));
    if (ec) {
        co_return fail(Errc::unavailable, ec.message());
    }
    co_return Status{};
}

std::string WsClient::local_address() const {
    if (!impl_->connection) {
        return {};
    }
    const tcp::socket& socket = impl_->connection->stream.next_layer().socket();
    if (is_unix(socket)) {
        return "127.0.0.1";  // the daemon is on this machine
    }
    ErrorCode ec;
    const auto local = socket.local_endpoint(ec);
    return ec ? std::string{} : local.address().to_string();
}

void WsClient::close() {
    impl_->closed = true;
    if (const auto connection = std::exchange(impl_->connection, nullptr)) {
        connection->stream.next_layer().close();
    }
}

}  // namespace lockstep
