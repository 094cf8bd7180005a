#include "job/async/one_request_server.hpp"

#include "job/async/sleep.hpp"
#include "job/base/log.hpp"

#include <set>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Peer = std::shared_ptr<tcp::socket>;

constexpr std::size_t kReceiveBytes = 64U << 10U;
constexpr int kServerWarnings = 16;  // about single connections; further ones are only counted
constexpr auto kAcceptPause = std::chrono::milliseconds{200};  // no descriptor left
constexpr int kNobody = 0;  // in place of a status: nobody is there to be answered

// What is received is parsed before anything else is, so one buffer serves every connection.
std::vector<char>& receive_buffer() {
    static std::vector<char> buffer(kReceiveBytes);
    return buffer;
}

std::string_view words_of(int status) {
    switch (status) {
        case 200:
            return "200 OK";
        case 401:
            return "401 Unauthorized";
        case 404:
            return "404 Not Found";
        case 405:
            return "405 Method Not Allowed";
        case 413:
            return "413 Payload Too Large";
        case 415:
            return "415 Unsupported Media Type";
        case 503:
            return "503 Service Unavailable";
        default:
            return "400 Bad Request";
    }
}

std::string head_of(const OneRequestServer::Answer& answer) {
    std::string out = "HTTP/1.1 " + std::string{words_of(answer.status)} + "\r\n";
    if (!answer.content_type.empty()) {
        out += "Content-Type: " + std::string{answer.content_type} + "\r\n";
    }
    return out + "Content-Length: " + std::to_string(answer.body ? answer.body->size() : 0) +
           "\r\nConnection: close\r\n\r\n";
}

// False: it is gone, or what it sends ends before the request does.
Task<bool> receive(Peer peer, std::size_t& size) {
    for (;;) {
        ErrorCode ec;
        co_await peer->async_wait(tcp::socket::wait_read, into(ec));
        if (ec) {
            co_return false;
        }
        size = peer->read_some(net::buffer(receive_buffer()), ec);
        if (ec != net::error::would_block && ec != net::error::interrupted) {
            co_return !ec && size > 0;
        }
    }
}

Task<bool> send_all(Peer peer, std::string_view bytes) {
    while (!bytes.empty()) {
        ErrorCode ec;
        const std::size_t sent =
            co_await peer->async_write_some(net::buffer(bytes.data(), bytes.size()), into(ec));
        if (ec) {
            co_return false;
        }
        bytes.remove_prefix(sent);
    }
    co_return true;
}

}  // namespace

struct OneRequestServer::Server {
    Server(TaskGroup& group, tcp::acceptor its_acceptor, Caps its_caps, Handlers its_handlers)
        : tasks(group),
          acceptor(std::move(its_acceptor)),
          pause(group.io()),
          caps(its_caps),
          handlers(std::move(its_handlers)) {}

    TaskGroup& tasks;
    tcp::acceptor acceptor;
    net::steady_timer pause;
    Caps caps;
    Handlers handlers;
    std::set<Peer> open;
    Totals totals;
    bool closed = false;

    static Task<void> accept(std::shared_ptr<Server> self);
    static Task<void> serve(std::shared_ptr<Server> self, Peer peer);
    // kNobody in `out.status`: nobody is there. `reserved`: of transit, to be given back. Whether
    // the request came to be answered.
    static Task<bool> take(std::shared_ptr<Server> self, Peer peer, Answer& out,
                           std::size_t& reserved);
    bool admit(const Peer& peer);
    void close_all();
};

OneRequestServer::OneRequestServer(TaskGroup& tasks, tcp::acceptor acceptor, Caps caps,
                                   Handlers handlers)
    : server_(std::make_shared<Server>(tasks, std::move(acceptor), caps, std::move(handlers))) {
    tasks.spawn("one request", Server::accept(server_));
}

OneRequestServer::~OneRequestServer() {
    server_->close_all();
}

std::uint16_t OneRequestServer::port() const {
    ErrorCode ec;
    const auto local = server_->acceptor.local_endpoint(ec);
    return ec ? 0 : local.port();
}

OneRequestServer::Totals OneRequestServer::totals() const {
    Totals out = server_->totals;
    out.connections = server_->open.size();
    return out;
}

bool OneRequestServer::Server::admit(const Peer& peer) {
    if (!handlers.admits(peer->native_handle())) {
        ++totals.refused;
        return false;
    }
    if (open.size() >= caps.connections) {
        if (++totals.refused <= kServerWarnings) {
            log::warn(handlers.name + " has as many connections as it takes",
                      {{"connections", open.size()}});
        }
        return false;
    }
    open.insert(peer);
    return true;
}

Task<void> OneRequestServer::Server::accept(std::shared_ptr<Server> self) {
    while (!self->closed) {
        ErrorCode ec;
        const auto peer = std::make_shared<tcp::socket>(self->tasks.io());
        co_await self->acceptor.async_accept(*peer, into(ec));
        if (self->closed) {
            co_return;
        }
        if (ec) {
            if (ec != net::error::connection_aborted) {
                log::warn(self->handlers.name + " cannot take another connection",
                          {{"why", ec.message()}, {"connections", self->open.size()}});
                co_await sleep_on(self->pause, kAcceptPause);
            }
            continue;
        }
        if (self->admit(peer)) {
            self->tasks.spawn("one request", serve(self, peer));
        }
    }
}

Task<void> OneRequestServer::Server::serve(std::shared_ptr<Server> self, Peer peer) {
    ErrorCode ignored;
    peer->non_blocking(true, ignored);
    peer->set_option(tcp::no_delay{true}, ignored);
    net::steady_timer timer{self->tasks.io(), self->caps.patience};
    timer.async_wait([peer](const ErrorCode& ec) {
        if (!ec) {
            ErrorCode unheard;
            peer->close(unheard);
        }
    });
    Answer answer;
    std::size_t reserved = 0;
    const bool came = co_await take(self, peer, answer, reserved);
    const bool served = came && (answer.status == 200 || answer.status == 404);
    self->totals.transit -= reserved;
    if (served) {
        ++self->totals.answered;
    } else if (++self->totals.refused <= kServerWarnings && answer.status != kNobody) {
        log::warn(self->handlers.name + " refuses a request", {{"status", answer.status}});
    }
    if (answer.status != kNobody) {
        const std::string head = head_of(answer);
        bool sent = co_await send_all(peer, head);
        if (sent && answer.body) {
            sent = co_await send_all(peer, *answer.body);
        }
        peer->shutdown(tcp::socket::shutdown_send, ignored);
        // What was refused may still be coming: closed now, the answer would be lost with it.
        std::size_t size = 0;
        while (sent && !served) {
            sent = co_await receive(peer, size);
        }
    }
    timer.cancel();
    peer->close(ignored);
    self->open.erase(peer);
}

Task<bool> OneRequestServer::Server::take(std::shared_ptr<Server> self, Peer peer, Answer& out,
                                          std::size_t& reserved) {
    using Step = RequestParser::Step;
    RequestParser parser{self->caps.head_bytes, self->caps.body_bytes};
    std::size_t size = 0;
    for (;;) {
        const bool got = co_await receive(peer, size);
        if (!got || self->closed) {
            out.status = kNobody;
            co_return false;
        }
        Step step = parser.feed({receive_buffer().data(), size});
        if (step == Step::head) {
            out.status = self->handlers.judge(parser);
            if (out.status != 200) {
                co_return false;
            }
            // Before it comes: so many clients' bodies are more than there is memory.
            if (parser.length() > self->caps.transit_bytes - self->totals.transit) {
                out.status = 503;
                self->handlers.left_out(parser, out.status);
                co_return false;
            }
            reserved = parser.length();
            self->totals.transit += reserved;
            step = parser.feed("");
        }
        if (step == Step::too_large) {
            out.status = 413;
            self->handlers.left_out(parser, out.status);
            co_return false;
        }
        if (step == Step::bad) {
            out.status = 400;
            co_return false;
        }
        if (step == Step::done) {
            out = self->handlers.answer(parser);
            co_return true;
        }
    }
}

void OneRequestServer::Server::close_all() {
    closed = true;
    ErrorCode ignored;
    acceptor.close(ignored);
    pause.cancel();
    for (const Peer& peer : open) {
        peer->close(ignored);
    }
}

}  // namespace lockstep
