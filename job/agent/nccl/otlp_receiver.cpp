#include "job/agent/nccl/otlp_receiver.hpp"

#include "job/async/asio.hpp"
#include "job/async/request_parser.hpp"
#include "job/async/sleep.hpp"
#include "job/base/log.hpp"

#include <array>
#include <set>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Caller = std::shared_ptr<tcp::socket>;

constexpr std::string_view kPath = "/v1/metrics";
constexpr auto kAcceptPause = std::chrono::milliseconds{200};  // no descriptor left
constexpr int kOtlpWarnings = 8;                               // further ones are only counted

// Nobody is there to be answered.
constexpr int kGone = 0;

// What is received is parsed before anything else is, so one buffer serves every connection.
std::vector<char>& otlp_buffer() {
    static std::vector<char> buffer(64U << 10U);
    return buffer;
}

std::string answer_of(int status) {
    constexpr std::array<std::pair<int, std::string_view>, 7> kWords{
        {{200, "OK"},
         {401, "Unauthorized"},
         {404, "Not Found"},
         {405, "Method Not Allowed"},
         {413, "Payload Too Large"},
         {415, "Unsupported Media Type"},
         {503, "Service Unavailable"}}};
    std::string_view words = "Bad Request";
    for (const auto& [number, text] : kWords) {
        words = number == status ? text : words;
    }
    const std::string_view body = status == 200 ? "{}" : "";
    return "HTTP/1.1 " + std::to_string(status) + " " + std::string{words} +
           (status == 200 ? "\r\nContent-Type: application/json" : "") +
           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" +
           std::string{body};
}

}  // namespace

struct OtlpReceiver::Server {
    Server(TaskGroup& group, Handlers its_handlers, OtlpCaps its_caps)
        : tasks(group),
          acceptor(group.io()),
          pause(group.io()),
          handlers(std::move(its_handlers)),
          caps(its_caps) {}

    TaskGroup& tasks;
    tcp::acceptor acceptor;
    net::steady_timer pause;
    Handlers handlers;
    OtlpCaps caps;
    std::set<Caller> open;
    Totals totals;
    bool closed = false;

    static Task<void> accept(std::shared_ptr<Server> self);
    static Task<void> serve(std::shared_ptr<Server> self, Caller caller);
    // The status of the answer. `reserved`: of transit, to be given back.
    static Task<int> take(std::shared_ptr<Server> self, Caller caller, std::size_t& reserved);
    // 200: go on with the body, which is `who`'s.
    int judge_head(const RequestParser& parser, std::int32_t& who) const;
    // The sender's place; -1: nobody's token.
    std::int32_t whose(const RequestParser& parser) const;
    void tell(std::int32_t who, int status) const {
        if (who >= 0 && (status == 413 || status == 503)) {
            handlers.left_out(who, status);
        }
    }
    void close_all();
};

Result<std::unique_ptr<OtlpReceiver>> OtlpReceiver::listen(TaskGroup& tasks, Handlers handlers,
                                                           OtlpCaps caps) {
    auto server = std::make_shared<Server>(tasks, std::move(handlers), caps);
    ErrorCode ec;
    server->acceptor.open(tcp::v4(), ec);
    if (!ec) {
        server->acceptor.bind({net::ip::address_v4::loopback(), 0}, ec);
    }
    if (!ec) {
        server->acceptor.listen(net::socket_base::max_listen_connections, ec);
    }
    if (ec) {
        return fail(Errc::unavailable, "listen for the ranks' OTLP: " + ec.message());
    }
    tasks.spawn("otlp", Server::accept(server));
    return std::unique_ptr<OtlpReceiver>{new OtlpReceiver{std::move(server)}};
}

OtlpReceiver::~OtlpReceiver() {
    server_->close_all();
}

std::uint16_t OtlpReceiver::port() const {
    ErrorCode ec;
    const auto local = server_->acceptor.local_endpoint(ec);
    return ec ? 0 : local.port();
}

OtlpReceiver::Totals OtlpReceiver::totals() const {
    Totals out = server_->totals;
    out.connections = server_->open.size();
    return out;
}

Task<void> OtlpReceiver::Server::accept(std::shared_ptr<Server> self) {
    while (!self->closed) {
        ErrorCode ec;
        const auto caller = std::make_shared<tcp::socket>(self->tasks.io());
        co_await self->acceptor.async_accept(*caller, into(ec));
        if (self->closed) {
            co_return;
        }
        if (ec) {
            if (ec != net::error::connection_aborted) {
                log::warn("the ranks' OTLP cannot be taken: no further connection",
                          {{"why", ec.message()}, {"connections", self->open.size()}});
                co_await sleep_on(self->pause, kAcceptPause);
            }
            continue;
        }
        if (self->open.size() >= self->caps.connections) {
            if (++self->totals.refused <= kOtlpWarnings) {
                log::warn("what ranks send as OTLP is refused: too many connections",
                          {{"connections", self->open.size()}});
            }
            continue;
        }
        self->open.insert(caller);
        self->tasks.spawn("otlp", serve(self, caller));
    }
}

Task<void> OtlpReceiver::Server::serve(std::shared_ptr<Server> self, Caller caller) {
    ErrorCode ignored;
    caller->non_blocking(true, ignored);
    net::steady_timer timer{self->tasks.io(), self->caps.patience};
    timer.async_wait([caller](const ErrorCode& ec) {
        if (!ec) {
            ErrorCode unheard;
            caller->close(unheard);
        }
    });
    std::size_t reserved = 0;
    const int status = co_await take(self, caller, reserved);
    self->totals.transit -= reserved;
    if (status == 200) {
        ++self->totals.taken;
    } else if (++self->totals.refused <= kOtlpWarnings && status != kGone) {
        log::warn("what a rank has sent as OTLP is refused", {{"status", status}});
    }
    if (status != kGone) {
        const std::string answer = answer_of(status);
        // As the first on its connection it fits into the system's buffer, whole.
        co_await caller->async_write_some(net::buffer(answer), into(ignored));
        caller->shutdown(tcp::socket::shutdown_send, ignored);
        // What was refused may still be coming: closed now, the answer would be lost with it.
        bool more = status != 200;
        while (more) {
            ErrorCode ec;
            co_await caller->async_read_some(net::buffer(otlp_buffer()), into(ec));
            more = !ec;
        }
    }
    timer.cancel();
    caller->close(ignored);
    self->open.erase(caller);
}

Task<int> OtlpReceiver::Server::take(std::shared_ptr<Server> self, Caller caller,
                                     std::size_t& reserved) {
    using Step = RequestParser::Step;
    RequestParser parser{limits::kOtlpHeadBytes, self->caps.body_bytes};
    std::int32_t who = -1;
    for (;;) {
        ErrorCode ec;
        co_await caller->async_wait(tcp::socket::wait_read, into(ec));
        std::size_t size = 0;
        if (!ec) {
            size = caller->read_some(net::buffer(otlp_buffer()), ec);
        }
        if (ec == net::error::would_block || ec == net::error::interrupted) {
            continue;
        }
        if (ec || size == 0 || self->closed) {
            co_return kGone;
        }
        Step step = parser.feed({otlp_buffer().data(), size});
        if (step == Step::head) {
            const int status = self->judge_head(parser, who);
            if (status != 200) {
                self->tell(who, status);
                co_return status;
            }
            reserved = parser.length();
            self->totals.transit += reserved;
            step = parser.feed("");
        }
        if (step == Step::too_large) {
            self->tell(self->whose(parser), 413);
            co_return 413;
        }
        if (step == Step::bad) {
            co_return 400;
        }
        if (step == Step::done) {
            co_return self->handlers.take(who, parser.take_body()) ? 200 : 400;
        }
    }
}

std::int32_t OtlpReceiver::Server::whose(const RequestParser& parser) const {
    constexpr std::string_view kScheme = "Bearer ";
    const std::string authorization = parser.header("Authorization");
    if (!std::string_view{authorization}.starts_with(kScheme)) {
        return -1;
    }
    return handlers.who(std::string_view{authorization}.substr(kScheme.size())).value_or(-1);
}

int OtlpReceiver::Server::judge_head(const RequestParser& parser, std::int32_t& who) const {
    who = whose(parser);
    if (who < 0) {
        return 401;
    }
    if (parser.target() != kPath) {
        return 404;
    }
    if (parser.method() != "POST") {
        return 405;
    }
    const std::string type = parser.header("Content-Type");
    if (type != "application/json" && !type.starts_with("application/json;")) {
        return 415;
    }
    return parser.length() > caps.transit_bytes - totals.transit ? 503 : 200;
}

void OtlpReceiver::Server::close_all() {
    closed = true;
    handlers = {[](std::string_view) { return std::nullopt; },
                [](std::int32_t, const std::string&) { return false; }, [](std::int32_t, int) {}};
    ErrorCode ignored;
    acceptor.close(ignored);
    pause.cancel();
    for (const Caller& caller : open) {
        caller->close(ignored);
    }
}

}  // namespace lockstep
