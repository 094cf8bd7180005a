#include "job/agent/nccl/otlp_receiver.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kPath = "/v1/metrics";

using Handlers = OtlpReceiver::Handlers;

// The sender's place; -1: nobody's token.
std::int32_t whose(const Handlers& handlers, const RequestParser& request) {
    constexpr std::string_view kScheme = "Bearer ";
    const std::string authorization = request.header("Authorization");
    if (!std::string_view{authorization}.starts_with(kScheme)) {
        return -1;
    }
    return handlers.who(std::string_view{authorization}.substr(kScheme.size())).value_or(-1);
}

int judge(const Handlers& handlers, const RequestParser& request) {
    if (whose(handlers, request) < 0) {
        return 401;
    }
    if (request.target() != kPath) {
        return 404;
    }
    if (request.method() != "POST") {
        return 405;
    }
    const std::string type = request.header("Content-Type");
    return type == "application/json" || type.starts_with("application/json;") ? 200 : 415;
}

OneRequestServer::Answer answer(const Handlers& handlers, RequestParser& request) {
    OneRequestServer::Answer out;
    if (!handlers.take(whose(handlers, request), request.take_body())) {
        out.status = 400;
        return out;
    }
    static const auto kTaken = std::make_shared<const std::string>("{}");
    out.body = kTaken;
    out.content_type = "application/json";
    return out;
}

}  // namespace

Result<std::unique_ptr<OtlpReceiver>> OtlpReceiver::listen(TaskGroup& tasks, Handlers handlers,
                                                           OtlpCaps caps) {
    tcp::acceptor acceptor{tasks.io()};
    ErrorCode ec;
    acceptor.open(tcp::v4(), ec);
    if (!ec) {
        acceptor.bind({net::ip::address_v4::loopback(), 0}, ec);
    }
    if (!ec) {
        acceptor.listen(net::socket_base::max_listen_connections, ec);
    }
    if (ec) {
        return fail(Errc::unavailable, "listen for the ranks' OTLP: " + ec.message());
    }
    OneRequestServer::Handlers out;
    const auto shared = std::make_shared<const Handlers>(std::move(handlers));
    out.name = "the receiver of the ranks' OTLP";
    out.judge = [shared](const RequestParser& request) { return judge(*shared, request); };
    out.answer = [shared](RequestParser& request) { return answer(*shared, request); };
    out.left_out = [shared](const RequestParser& request, int status) {
        if (const std::int32_t who = whose(*shared, request); who >= 0) {
            shared->left_out(who, status);
        }
    };
    const OneRequestServer::Caps bounds{caps.connections, limits::kOtlpHeadBytes, caps.body_bytes,
                                        caps.transit_bytes, caps.patience};
    return std::unique_ptr<OtlpReceiver>{new OtlpReceiver{
        std::make_unique<OneRequestServer>(tasks, std::move(acceptor), bounds, std::move(out))}};
}

OtlpReceiver::Totals OtlpReceiver::totals() const {
    const OneRequestServer::Totals of_server = server_->totals();
    return {of_server.connections, of_server.transit, of_server.answered, of_server.refused};
}

}  // namespace lockstep
