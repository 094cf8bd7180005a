#include "job/agent/torch_store/tcp_store.hpp"

#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Descriptor = net::posix::stream_descriptor;

constexpr std::size_t kStoreReadBytes = 256U << 10U;
constexpr std::size_t kReplyCapacity = 16U << 10U;  // of a connection's reply buffer
constexpr int kEvents = 256;
// Batches of events before the rest of the agent gets its turn; a batch takes about a millisecond.
constexpr int kStoreTurn = 8;
constexpr int kStoreWarnings = 16;  // about single connections; further ones are only counted

// Queries are handled before more is read, so one buffer serves every connection.
std::vector<char>& store_buffer() {
    static std::vector<char> buffer(kStoreReadBytes);
    return buffer;
}

}  // namespace

// Asio waits only on an epoll instance that has all the sockets: a wake that lets 10,000 ranks go
// on is one wait, not 10,000.
struct TcpStore::Server final : private TcpStoreState::Replies {
    struct Connection {
        TcpStoreParser parser;
        std::string out;
        std::size_t sent = 0;     // of `out`
        std::size_t counted = 0;  // in transit_
        bool blocked = false;     // its socket takes no more: nothing is read until it does
        bool dirty = false;       // in dirty_
    };

    Server(net::io_context& io, UniqueFd epoll, UniqueFd socket, TcpStoreCaps its_caps,
           std::unique_ptr<StoreGuard> its_guard)
        : ready(io, epoll.release()),
          listener(std::move(socket)),
          caps(its_caps),
          guard(std::move(its_guard)),
          state(its_caps) {}

    Descriptor ready;
    UniqueFd listener;
    TcpStoreCaps caps;
    std::unique_ptr<StoreGuard> guard;
    TcpStoreState state;
    std::vector<std::unique_ptr<Connection>> connections;  // by descriptor
    std::vector<int> dirty;                                // have something to send
    StoreQuery query;                                      // scratch
    Totals totals;
    bool accepting = true;
    bool closed = false;

    static Task<void> serve(std::shared_ptr<Server> self);
    void turn();
    void accept_waiting();
    void listen_again();
    void on_event(int fd, std::uint32_t events);
    void receive(int fd, Connection& from);
    bool answer_all(int fd, Connection& from, std::string_view bytes);
    void flush(int fd);
    void flush_dirty();
    bool count(Connection& of);
    bool watch(int fd, std::uint32_t events, int operation);
    void drop(int fd, const std::string& why);
    void close_connection(int fd);
    void close_all();
    Connection* at(int fd) {
        const auto index = static_cast<std::size_t>(fd);
        return index < connections.size() ? connections[index].get() : nullptr;
    }

    std::string& to(TcpStoreState::Id id) override {
        Connection& connection = *connections[id];
        if (!connection.dirty) {
            connection.dirty = true;
            dirty.push_back(static_cast<int>(id));
        }
        return connection.out;
    }
};

Result<std::unique_ptr<TcpStore>> TcpStore::listen(TaskGroup& tasks, int bound, TcpStoreCaps caps,
                                                   std::unique_ptr<StoreGuard> guard) {
    UniqueFd socket{::fcntl(bound, F_DUPFD_CLOEXEC, 0)};
    UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
    const int on = 1;
    // Accepted sockets inherit TCP_NODELAY: a reply is one write.
    if (!socket || !epoll || ::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0 ||
        ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        ::listen(socket.get(), SOMAXCONN) != 0) {
        return fail(errno_error("serve a store", errno));
    }
    // Of ranks of the generation before, which would count as ones of this.
    while (UniqueFd{::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC)}) {
    }
    auto server = std::make_shared<Server>(tasks.io(), std::move(epoll), std::move(socket), caps,
                                           std::move(guard));
    if (!server->watch(server->listener.get(), EPOLLIN, EPOLL_CTL_ADD)) {
        return fail(errno_error("serve a store", errno));
    }
    tasks.spawn("tcp store", Server::serve(server));
    return std::unique_ptr<TcpStore>{new TcpStore{std::move(server)}};
}

TcpStore::~TcpStore() {
    server_->close_all();
}

TcpStore::Totals TcpStore::totals() const {
    Totals out = server_->totals;
    out.keys = server_->state.keys();
    out.bytes = server_->state.bytes();
    return out;
}

Task<void> TcpStore::Server::serve(std::shared_ptr<Server> self) {
    while (!self->closed) {
        ErrorCode ec;
        co_await self->ready.async_wait(Descriptor::wait_read, into(ec));
        if (ec || self->closed) {
            co_return;
        }
        self->turn();
    }
}

void TcpStore::Server::turn() {
    std::array<epoll_event, kEvents> events{};
    for (int batch = 0; batch < kStoreTurn; ++batch) {
        const int count = ::epoll_wait(ready.native_handle(), events.data(), kEvents, 0);
        if (count <= 0) {
            return;
        }
        // The listener first, before anything is closed: a descriptor that is used again in this
        // batch would be given the old one's event. And it resets what its queue cannot take.
        const auto end = events.begin() + count;
        if (std::any_of(events.begin(), end, [this](const epoll_event& event) {
                return event.data.fd == listener.get();
            })) {
            accept_waiting();
        }
        std::for_each(events.begin(), end, [this](const epoll_event& event) {
            if (event.data.fd != listener.get()) {
                on_event(event.data.fd, event.events);
            }
        });
        if (count < kEvents) {
            return;
        }
    }
}

bool TcpStore::Server::watch(int fd, std::uint32_t events, int operation) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return ::epoll_ctl(ready.native_handle(), operation, fd, &event) == 0;
}

void TcpStore::Server::accept_waiting() {
    while (accepting) {
        UniqueFd socket{::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        if (!socket) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                // It would be told again at once: it waits until one closes.
                log::error("the store for the ranks cannot take another connection",
                           {{"why", errno_error("accept", errno).message},
                            {"connections", totals.connections}});
                accepting = false;
                watch(listener.get(), 0, EPOLL_CTL_MOD);
            } else if (errno == ECONNABORTED || errno == EINTR) {
                continue;
            }
            return;
        }
        if (guard && !guard->admits(socket.get())) {
            ++totals.refused;
            continue;
        }
        if (totals.connections >= caps.connections) {
            if (++totals.refused <= kStoreWarnings) {
                log::warn("the store for the ranks has as many connections as it takes",
                          {{"connections", totals.connections}});
            }
            continue;
        }
        const auto index = static_cast<std::size_t>(socket.get());
        if (!watch(socket.get(), EPOLLIN, EPOLL_CTL_ADD)) {
            continue;
        }
        if (index >= connections.size()) {
            connections.resize(index + 64);
        }
        connections[index] = std::make_unique<Connection>();
        ++totals.connections;
        socket.release();  // connections[index] stands for it
    }
}

void TcpStore::Server::listen_again() {
    if (!accepting && !closed) {
        accepting = watch(listener.get(), EPOLLIN, EPOLL_CTL_MOD);
    }
}

void TcpStore::Server::on_event(int fd, std::uint32_t events) {
    Connection* connection = at(fd);
    if (connection == nullptr) {
        return;
    }
    if ((events & EPOLLOUT) != 0) {
        flush(fd);
        return;
    }
    if (connection->blocked) {  // an error or a hang-up: those cannot be left out of the watch
        close_connection(fd);
        return;
    }
    receive(fd, *connection);
    flush_dirty();
}

void TcpStore::Server::receive(int fd, Connection& from) {
    std::vector<char>& buffer = store_buffer();
    const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (size <= 0) {
        close_connection(fd);
        return;
    }
    if (answer_all(fd, from, {buffer.data(), static_cast<std::size_t>(size)}) && !count(from)) {
        drop(fd, "the store has too much that is half received or not taken");
    }
}

// False: the connection is gone.
bool TcpStore::Server::answer_all(int fd, Connection& from, std::string_view bytes) {
    from.parser.begin(bytes);
    TcpStoreParser::Step step{};
    while ((step = from.parser.next(query)) == TcpStoreParser::Step::query) {
        ++totals.queries;
        // Only what asks and asks and reads nothing comes to this.
        if (from.out.size() - from.sent > caps.reply_bytes) {
            drop(fd, "replies are not taken");
            return false;
        }
        const auto applied = state.apply(static_cast<TcpStoreState::Id>(fd), query, *this);
        if (!applied) {
            drop(fd, applied.error().message);
            return false;
        }
    }
    from.parser.end();
    if (step == TcpStoreParser::Step::bad) {
        drop(fd, from.parser.problem());
        return false;
    }
    return true;
}

void TcpStore::Server::flush_dirty() {
    // flush() may close connections, which adds none.
    for (std::size_t i = 0; i < dirty.size(); ++i) {
        if (Connection* connection = at(dirty[i])) {
            connection->dirty = false;
            if (!connection->blocked) {
                flush(dirty[i]);
            } else if (!count(*connection)) {
                drop(dirty[i], "replies are not taken");
            }
        }
    }
    dirty.clear();
}

void TcpStore::Server::flush(int fd) {
    Connection& to_whom = *at(fd);
    std::string& out = to_whom.out;
    while (to_whom.sent < out.size()) {
        const ssize_t size =
            ::send(fd, out.data() + to_whom.sent, out.size() - to_whom.sent, MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0 && errno != EAGAIN) {
            close_connection(fd);
            return;
        }
        if (size < 0) {
            break;
        }
        to_whom.sent += static_cast<std::size_t>(size);
    }
    const bool blocked = to_whom.sent < out.size();
    if (!blocked) {
        out.clear();
        to_whom.sent = 0;
        if (out.capacity() > kReplyCapacity) {
            std::string{}.swap(out);
        }
    }
    if (blocked != to_whom.blocked) {
        to_whom.blocked = blocked;
        watch(fd, blocked ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
    }
    if (!count(to_whom)) {
        drop(fd, "the store has too much that is half received or not taken");
    }
}

// Brings the sum of what is in transit up to date; false: it is too much.
bool TcpStore::Server::count(Connection& of) {
    const std::size_t now = of.parser.kept() + of.out.size();
    totals.transit = totals.transit - of.counted + now;
    const bool more = now > of.counted;
    of.counted = now;
    return !more || totals.transit <= caps.transit_bytes;
}

void TcpStore::Server::drop(int fd, const std::string& why) {
    if (++totals.refused <= kStoreWarnings) {
        sockaddr_storage address{};
        socklen_t size = sizeof(address);
        tcp::endpoint peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
            size <= peer.capacity()) {
            std::memcpy(peer.data(), &address, size);
            peer.resize(size);
        }
        log::warn("a connection to the store for the ranks is closed",
                  {{"peer", peer.address().to_string()}, {"why", why}});
    }
    close_connection(fd);
}

void TcpStore::Server::close_connection(int fd) {
    const auto index = static_cast<std::size_t>(fd);
    totals.transit -= connections[index]->counted;
    connections[index].reset();
    --totals.connections;
    state.forget(index);
    ::close(fd);
    listen_again();
}

void TcpStore::Server::close_all() {
    closed = true;
    for (std::size_t fd = 0; fd < connections.size(); ++fd) {
        if (connections[fd]) {
            ::close(static_cast<int>(fd));
        }
    }
    connections.clear();
    totals.connections = 0;
    listener.reset();
    ErrorCode ignored;
    ready.close(ignored);
}

}  // namespace lockstep
