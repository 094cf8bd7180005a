#include "job/agent/ranks/report_socket.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Asio 1.74 knows no SEQPACKET sockets: they are made with the system calls and only waited on.
using Descriptor = net::posix::stream_descriptor;

// A value of 1 MiB in base 64 and its frame; the kernel caps it.
constexpr int kSocketBuffer = 4 << 20;
constexpr int kReportTurn = 64;  // messages before others get their turn

// Messages are handled before the next is read, so one buffer serves every connection.
std::vector<char>& message_buffer() {
    static std::vector<char> buffer(limits::kRankMessageBytes);
    return buffer;
}

// One message, whose whole size is returned, and the descriptor that came with it.
ssize_t receive_with_descriptor(int fd, std::vector<char>& buffer, UniqueFd& descriptor) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    descriptor.reset();
    const auto got = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (got < 0) {
        return got;
    }
    const cmsghdr* head = CMSG_FIRSTHDR(&message);
    if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len >= CMSG_LEN(sizeof(int))) {
        int passed = -1;
        std::memcpy(&passed, CMSG_DATA(head), sizeof(passed));
        descriptor.reset(passed);
    }
    return got;
}

}  // namespace

struct ReportSocket::State {
    struct Answer {
        std::string text;
        std::string instead;
    };
    struct Connection {
        Connection(net::io_context& io, int fd, std::uint64_t n) : socket(io, fd), id(n) {}
        Descriptor socket;
        std::uint64_t id;
        std::int64_t pid = 0;
        std::deque<Answer> answers;
        std::size_t answer_bytes = 0;
        bool writing = false;
    };

    State(TaskGroup& group, Handlers h)
        : tasks(group), acceptor(group.io()), handlers(std::move(h)) {}

    TaskGroup& tasks;
    Descriptor acceptor;
    Handlers handlers;
    std::string path;
    std::map<std::uint64_t, std::shared_ptr<Connection>> connections;
    std::uint64_t next_id = 1;
    UniqueFd descriptor;  // of the message that is being handled
    bool closed = false;

    void accept_waiting(const std::shared_ptr<State>& self);
    bool receive(Connection& from, int most);
    bool flush(Connection& to);
    void drop(Connection& connection);
    static Task<void> accept(std::shared_ptr<State> self);
    static Task<void> read(std::shared_ptr<State> self, std::shared_ptr<Connection> from);
    static Task<void> write(std::shared_ptr<State> self, std::shared_ptr<Connection> to);
};

// Takes every connection in the listen queue.
void ReportSocket::State::accept_waiting(const std::shared_ptr<State>& self) {
    while (!closed) {
        const int fd =
            ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        UniqueFd owned{fd};
        if (connections.size() >= limits::kRankConnections) {
            log::warn("report connection refused, the rank has too many", {{"path", path}});
            continue;
        }
        ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof(kSocketBuffer));
        ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof(kSocketBuffer));
        auto connection = std::make_shared<Connection>(tasks.io(), owned.release(), next_id++);
        ucred peer{};
        socklen_t size = sizeof(peer);
        if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
            connection->pid = peer.pid;
        }
        connections[connection->id] = connection;
        tasks.spawn("report connection", read(self, connection));
    }
}

// Reads up to `most` messages; false when the connection has ended.
bool ReportSocket::State::receive(Connection& from, int most) {
    auto& buffer = message_buffer();
    for (int i = 0; i < most && !closed && from.socket.is_open(); ++i) {
        const auto got = receive_with_descriptor(from.socket.native_handle(), buffer, descriptor);
        if (got < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        if (got == 0) {
            return false;
        }
        const auto size = static_cast<std::size_t>(got);
        if (size > buffer.size()) {
            handlers.too_large(from.id, size, std::string_view{buffer.data(), buffer.size()});
        } else {
            handlers.message(from.id, std::string_view{buffer.data(), size});
        }
    }
    return from.socket.is_open();
}

// Sends what fits; false when the connection is broken.
bool ReportSocket::State::flush(Connection& to) {
    while (!to.answers.empty()) {
        const std::string& front = to.answers.front().text;
        const auto sent = ::send(to.socket.native_handle(), front.data(), front.size(),
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            return true;
        }
        if (sent < 0 && errno == EMSGSIZE && !to.answers.front().instead.empty()) {
            to.answer_bytes -= front.size();
            to.answers.front().text = std::exchange(to.answers.front().instead, {});
            to.answer_bytes += front.size();
            continue;
        }
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        if (sent >= 0) {
            to.answer_bytes -= front.size();
            to.answers.pop_front();
        }
    }
    return true;
}

void ReportSocket::State::drop(Connection& connection) {
    ErrorCode ec;
    connection.socket.close(ec);
    connections.erase(connection.id);
}

Task<void> ReportSocket::State::accept(std::shared_ptr<State> self) {
    while (!self->closed) {
        ErrorCode ec;
        co_await self->acceptor.async_wait(Descriptor::wait_read, into(ec));
        if (ec) {
            break;
        }
        self->accept_waiting(self);
    }
}

Task<void> ReportSocket::State::read(std::shared_ptr<State> self,
                                     std::shared_ptr<Connection> from) {
    while (!self->closed) {
        ErrorCode ec;
        co_await from->socket.async_wait(Descriptor::wait_read, into(ec));
        if (ec || !self->receive(*from, kReportTurn)) {
            break;
        }
    }
    self->drop(*from);
}

Task<void> ReportSocket::State::write(std::shared_ptr<State> self, std::shared_ptr<Connection> to) {
    while (!self->closed && !to->answers.empty()) {
        ErrorCode ec;
        co_await to->socket.async_wait(Descriptor::wait_write, into(ec));
        if (ec || !self->flush(*to)) {
            self->drop(*to);
            break;
        }
    }
    to->writing = false;
}

Result<std::unique_ptr<ReportSocket>> ReportSocket::listen(TaskGroup& tasks,
                                                           const std::string& path,
                                                           Handlers handlers) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        return fail(Errc::invalid, "report socket " + path + ": the path is too long");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    UniqueFd fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    ::unlink(path.c_str());
    const auto* where = reinterpret_cast<const sockaddr*>(&address);
    if (!fd || ::bind(fd.get(), where, sizeof(address)) != 0 ||
        ::listen(fd.get(), static_cast<int>(limits::kRankConnections)) != 0) {
        return fail(file_error("report socket", path, errno));
    }
    auto state = std::make_shared<State>(tasks, std::move(handlers));
    state->path = path;
    state->acceptor.assign(fd.release());
    tasks.spawn("report socket", State::accept(state));
    return std::unique_ptr<ReportSocket>(new ReportSocket(std::move(state)));
}

ReportSocket::~ReportSocket() {
    close();
}

void ReportSocket::answer(std::uint64_t connection, std::string message, std::string instead) {
    const auto found = state_->connections.find(connection);
    if (state_->closed || found == state_->connections.end()) {
        return;
    }
    const auto to = found->second;
    to->answer_bytes += message.size();
    to->answers.push_back({std::move(message), std::move(instead)});
    if (to->writing) {
        if (to->answer_bytes > limits::kRankAnswersBytes) {
            log::warn("report connection closed, it does not read its answers",
                      {{"path", state_->path}});
            state_->drop(*to);
        }
        return;
    }
    if (!state_->flush(*to)) {
        state_->drop(*to);
    } else if (!to->answers.empty()) {
        to->writing = true;
        state_->tasks.spawn("report answer", State::write(state_, to));
    }
}

std::int64_t ReportSocket::peer(std::uint64_t connection) const {
    const auto found = state_->connections.find(connection);
    return found == state_->connections.end() ? 0 : found->second->pid;
}

UniqueFd ReportSocket::take_descriptor() {
    return std::exchange(state_->descriptor, UniqueFd{});
}

void ReportSocket::drain() {
    state_->accept_waiting(state_);
    const auto connections = state_->connections;  // receive() may drop one
    for (const auto& [id, connection] : connections) {
        state_->receive(*connection, limits::kRankMessagesLeft);
    }
}

void ReportSocket::close() {
    if (std::exchange(state_->closed, true)) {
        return;
    }
    ErrorCode ec;
    state_->acceptor.close(ec);
    for (const auto& [id, connection] : state_->connections) {
        connection->socket.close(ec);
    }
    state_->connections.clear();
    ::unlink(state_->path.c_str());
}

}  // namespace lockstep
