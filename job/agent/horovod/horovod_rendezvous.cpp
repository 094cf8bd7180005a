#include "job/agent/horovod/horovod_rendezvous.hpp"

#include "job/async/asio.hpp"
#include "job/async/request_parser.hpp"
#include "job/async/sleep.hpp"
#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Socket = std::shared_ptr<tcp::socket>;

constexpr std::size_t kRequestBytes = 64U << 10U;
constexpr int kKeyWarnings = 16;  // about single connections; further ones are only counted
constexpr auto kPause = std::chrono::milliseconds{200};  // no descriptor left: until the next try

// What is received is parsed before anything else is, so one buffer serves every connection.
std::vector<char>& request_buffer() {
    static std::vector<char> buffer(kRequestBytes);
    return buffer;
}

struct Path {
    std::string scope;
    std::string key;
};

// Exactly two parts, as they come: Horovod's are plain words.
std::optional<Path> parse_path(const std::string& target) {
    const auto slash = target.find('/', 1);
    if (target.empty() || target.front() != '/' || slash == std::string::npos || slash == 1 ||
        slash + 1 == target.size() || target.find('/', slash + 1) != std::string::npos ||
        target.size() > limits::kStoreKeyBytes) {
        return std::nullopt;
    }
    return Path{target.substr(1, slash - 1), target.substr(slash + 1)};
}

std::string head_of(int status, std::size_t length) {
    const std::string_view words = status == 200   ? "200 OK"
                                   : status == 404 ? "404 Not Found"
                                   : status == 405 ? "405 Method Not Allowed"
                                   : status == 413 ? "413 Payload Too Large"
                                   : status == 503 ? "503 Service Unavailable"
                                                   : "400 Bad Request";
    return "HTTP/1.1 " + std::string{words} + "\r\nContent-Length: " + std::to_string(length) +
           "\r\nConnection: close\r\n\r\n";
}

// False: it is gone, or what it sends ends before the request does.
Task<bool> receive(Socket socket, std::size_t& size) {
    for (;;) {
        ErrorCode ec;
        co_await socket->async_wait(tcp::socket::wait_read, into(ec));
        if (ec) {
            co_return false;
        }
        size = socket->read_some(net::buffer(request_buffer()), ec);
        if (ec != net::error::would_block && ec != net::error::interrupted) {
            co_return !ec && size > 0;
        }
    }
}

Task<bool> send_all(Socket socket, std::string_view bytes) {
    while (!bytes.empty()) {
        ErrorCode ec;
        const std::size_t sent =
            co_await socket->async_write_some(net::buffer(bytes.data(), bytes.size()), into(ec));
        if (ec) {
            co_return false;
        }
        bytes.remove_prefix(sent);
    }
    co_return true;
}

}  // namespace

struct HorovodRendezvous::Server {
    Server(TaskGroup& group, ScopeSizes sizes, HorovodRendezvousCaps its_caps,
           std::unique_ptr<StoreGuard> its_guard)
        : tasks(group),
          acceptor(group.io()),
          pause(group.io()),
          caps(its_caps),
          guard(std::move(its_guard)),
          scopes(sizes, limits::kStoreKeys, its_caps.bytes) {}

    TaskGroup& tasks;
    tcp::acceptor acceptor;
    net::steady_timer pause;
    HorovodRendezvousCaps caps;
    std::unique_ptr<StoreGuard> guard;
    HorovodScopes scopes;
    std::set<Socket> open;
    Totals totals;
    bool closed = false;

    static Task<void> accept(std::shared_ptr<Server> self);
    static Task<void> serve(std::shared_ptr<Server> self, Socket socket);
    // The answer's status; `value`: its body. `reserved`: of transit, to be given back.
    static Task<int> take(std::shared_ptr<Server> self, Socket socket, HorovodScopes::Value& value,
                          std::size_t& reserved);
    int apply(const std::string& method, const Path& path, std::string body,
              HorovodScopes::Value& value);
    void close_all();
};

Result<std::unique_ptr<HorovodRendezvous>> HorovodRendezvous::listen(
    TaskGroup& tasks, int bound, ScopeSizes sizes, HorovodRendezvousCaps caps,
    std::unique_ptr<StoreGuard> guard) {
    UniqueFd socket{::fcntl(bound, F_DUPFD_CLOEXEC, 0)};
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (!socket || ::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        ::listen(socket.get(), SOMAXCONN) != 0) {
        return fail(errno_error("serve a rendezvous", errno));
    }
    // Of ranks of the generation before.
    while (UniqueFd{::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC)}) {
    }
    auto server = std::make_shared<Server>(tasks, sizes, caps, std::move(guard));
    ErrorCode ec;
    server->acceptor.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), socket.get(),
                            ec);
    if (ec) {
        return fail(Errc::internal, "serve a rendezvous: " + ec.message());
    }
    socket.release();  // the acceptor has it
    tasks.spawn("key http", Server::accept(server));
    return std::unique_ptr<HorovodRendezvous>{new HorovodRendezvous{std::move(server)}};
}

HorovodRendezvous::~HorovodRendezvous() {
    server_->close_all();
}

HorovodRendezvous::Totals HorovodRendezvous::totals() const {
    Totals out = server_->totals;
    out.connections = server_->open.size();
    out.keys = server_->scopes.keys();
    out.bytes = server_->scopes.bytes();
    return out;
}

Task<void> HorovodRendezvous::Server::accept(std::shared_ptr<Server> self) {
    while (!self->closed) {
        ErrorCode ec;
        const auto socket = std::make_shared<tcp::socket>(self->tasks.io());
        co_await self->acceptor.async_accept(*socket, into(ec));
        if (self->closed) {
            co_return;
        }
        if (ec) {
            if (ec != net::error::connection_aborted) {
                log::warn("the rendezvous for the ranks cannot take another connection",
                          {{"why", ec.message()}, {"connections", self->open.size()}});
                co_await sleep_on(self->pause, kPause);
            }
            continue;
        }
        if (self->guard && !self->guard->admits(socket->native_handle())) {
            ++self->totals.refused;
            continue;
        }
        if (self->open.size() >= self->caps.connections) {
            if (++self->totals.refused <= kKeyWarnings) {
                log::warn("the rendezvous for the ranks has as many connections as it takes",
                          {{"connections", self->open.size()}});
            }
            continue;
        }
        self->open.insert(socket);
        self->tasks.spawn("key http", serve(self, socket));
    }
}

Task<void> HorovodRendezvous::Server::serve(std::shared_ptr<Server> self, Socket socket) {
    ErrorCode ignored;
    socket->non_blocking(true, ignored);
    socket->set_option(tcp::no_delay{true}, ignored);
    net::steady_timer timer{self->tasks.io(), self->caps.patience};
    timer.async_wait([socket](const ErrorCode& ec) {
        if (!ec) {
            ErrorCode unheard;
            socket->close(unheard);
        }
    });
    HorovodScopes::Value value;
    std::size_t reserved = 0;
    const int status = co_await take(self, socket, value, reserved);
    self->totals.transit -= reserved;
    if (status == 200 || status == 404) {
        ++self->totals.requests;
    } else if (++self->totals.refused <= kKeyWarnings && status != 0) {
        log::warn("the rendezvous for the ranks refuses a request", {{"status", status}});
    }
    if (status != 0) {
        const std::string head = head_of(status, value ? value->size() : 0);
        bool sent = co_await send_all(socket, head);
        if (sent && value) {
            sent = co_await send_all(socket, *value);
        }
        socket->shutdown(tcp::socket::shutdown_send, ignored);
        // What was refused may still be coming: closed now, the answer would be lost with it.
        std::size_t size = 0;
        while (sent && status != 200 && status != 404) {
            sent = co_await receive(socket, size);
        }
    }
    timer.cancel();
    socket->close(ignored);
    self->open.erase(socket);
}

// 0: nobody is there to be answered.
Task<int> HorovodRendezvous::Server::take(std::shared_ptr<Server> self, Socket socket,
                                          HorovodScopes::Value& value, std::size_t& reserved) {
    using Step = RequestParser::Step;
    RequestParser parser{limits::kHorovodHeadBytes, self->caps.value_bytes};
    std::size_t size = 0;
    for (;;) {
        const bool got = co_await receive(socket, size);
        if (!got) {
            co_return 0;
        }
        Step step = parser.feed({request_buffer().data(), size});
        if (step == Step::head) {
            // Before it comes: so many clients' bodies are more than there is memory.
            if (parser.length() > self->caps.transit_bytes - self->totals.transit) {
                co_return 503;
            }
            reserved = parser.length();
            self->totals.transit += reserved;
            step = parser.feed("");
        }
        if (step == Step::too_large) {
            co_return 413;
        }
        if (step == Step::bad) {
            co_return 400;
        }
        if (step == Step::done) {
            const auto path = parse_path(parser.target());
            co_return path ? self->apply(parser.method(), *path, parser.take_body(), value) : 400;
        }
    }
}

int HorovodRendezvous::Server::apply(const std::string& method, const Path& path, std::string body,
                                     HorovodScopes::Value& value) {
    if (method == "GET") {
        value = scopes.get(path.scope, path.key);
        return value ? 200 : 404;
    }
    if (method == "PUT") {
        return scopes.put(path.scope, path.key, std::move(body)) ? 200 : 503;
    }
    if (method == "DELETE") {
        scopes.remove(path.scope, path.key);
        return 200;
    }
    return 405;
}

void HorovodRendezvous::Server::close_all() {
    closed = true;
    ErrorCode ignored;
    acceptor.close(ignored);
    pause.cancel();
    for (const Socket& socket : open) {
        socket->close(ignored);
    }
}

}  // namespace lockstep
