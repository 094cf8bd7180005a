#include "job/agent/ranks/task_gate.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>

namespace lockstep {

using StreamDescriptor = net::posix::stream_descriptor;

// One task on its way in.
struct TaskPeer {
    explicit TaskPeer(net::io_context& io) : socket(io), again(io) {}
    StreamDescriptor socket;
    net::steady_timer again;  // cancelled when it is to be planned again
    task_wire::Reader reader;
    UniqueFd output;
};

struct TaskGate::State {
    State(TaskGroup& group, Handlers given)
        : tasks(group), listener(group.io()), handlers(std::move(given)) {}
    TaskGroup& tasks;
    StreamDescriptor listener;
    Handlers handlers;
    bool open = true;
    std::set<std::shared_ptr<TaskPeer>> peers;
};

namespace {

// The next frame of the peer; nothing once it is not to be heard any more.
Task<std::optional<std::string>> read_frame(TaskPeer& peer) {
    for (;;) {
        auto whole = peer.reader.next();
        if (!whole || *whole) {
            co_return whole ? std::move(*whole) : std::nullopt;
        }
        ErrorCode ec;
        co_await peer.socket.async_wait(StreamDescriptor::wait_read, into(ec));
        if (ec) {
            co_return std::nullopt;
        }
        const auto bytes = task_wire::receive(peer.socket.native_handle(), peer.output);
        if (!bytes) {
            co_return std::nullopt;
        }
        peer.reader.feed(*bytes);
    }
}

Task<bool> write_frame(TaskPeer& peer, std::string text) {
    const std::string bytes = task_wire::frame(text);
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t wrote = ::send(peer.socket.native_handle(), bytes.data() + done,
                                     bytes.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (wrote > 0) {
            done += static_cast<std::size_t>(wrote);
        } else if (errno == EAGAIN || errno == EINTR) {
            ErrorCode ec;
            co_await peer.socket.async_wait(StreamDescriptor::wait_write, into(ec));
            if (ec) {
                co_return false;
            }
        } else {
            co_return false;
        }
    }
    co_return true;
}

}  // namespace

Result<std::unique_ptr<TaskGate>> TaskGate::open(TaskGroup& tasks, const std::string& path,
                                                 Handlers handlers) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return fail(Errc::invalid, "socket path too long: " + path);
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    ::unlink(path.c_str());
    if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(fd.get(), limits::kRanksPerNode) != 0) {
        return fail(errno_error("socket for tasks", errno));
    }
    auto state = std::make_shared<State>(tasks, std::move(handlers));
    state->listener.assign(fd.release());
    tasks.spawn("task gate", listen(state));
    return std::unique_ptr<TaskGate>{new TaskGate{std::move(state)}};
}

TaskGate::~TaskGate() {
    state_->open = false;
    ErrorCode ec;
    state_->listener.close(ec);
    for (const auto& peer : state_->peers) {
        peer->socket.close(ec);
        peer->again.cancel();
    }
}

void TaskGate::look_again() {
    for (const auto& peer : state_->peers) {
        peer->again.cancel();
    }
}

// srun may start a task before its own node's agent has heard START.
Task<std::optional<task_wire::Plan>> TaskGate::wait_for_plan(std::shared_ptr<State> state,
                                                             std::shared_ptr<TaskPeer> peer,
                                                             const task_wire::Hello& hello) {
    auto plan = state->handlers.plan(hello);
    if (!plan) {
        log::info("a task waits for START",
                  {{"rank", hello.rank}, {"generation", hello.generation}});
    }
    while (!plan) {
        ErrorCode ec;
        peer->again.expires_at(std::chrono::steady_clock::time_point::max());
        co_await peer->again.async_wait(into(ec));
        if (!state->open) {
            co_return std::nullopt;
        }
        plan = state->handlers.plan(hello);
    }
    co_return plan;
}

Task<void> TaskGate::listen(std::shared_ptr<State> state) {
    while (state->open) {
        ErrorCode ec;
        co_await state->listener.async_wait(StreamDescriptor::wait_read, into(ec));
        if (ec || !state->open) {
            co_return;
        }
        const int fd = ::accept4(state->listener.native_handle(), nullptr, nullptr,
                                 SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            continue;
        }
        auto peer = std::make_shared<TaskPeer>(state->tasks.io());
        peer->socket.assign(fd);
        state->peers.insert(peer);
        state->tasks.spawn("task", serve(state, peer));
    }
}

Task<void> TaskGate::serve(std::shared_ptr<State> state, std::shared_ptr<TaskPeer> peer) {
    const auto first = co_await read_frame(*peer);
    auto hello = first ? task_wire::decode_hello(*first)
                       : Result<task_wire::Hello>{fail(Errc::unavailable, "gone")};
    if (hello && peer->output && state->open) {
        const auto plan = co_await wait_for_plan(state, peer, *hello);
        bool told = false;
        if (plan) {
            told = co_await write_frame(*peer, encode(*plan));
        }
        if (told && plan->refused.empty()) {
            const auto second = co_await read_frame(*peer);
            const auto pid = second ? task_wire::decode_pid(*second)
                                    : Result<std::int64_t>{fail(Errc::unavailable, "gone")};
            if (pid && state->open) {
                Started started;
                started.hello = std::move(*hello);
                started.pid = *pid;
                started.socket.reset(peer->socket.release());
                started.reader = std::move(peer->reader);
                started.output = std::move(peer->output);
                state->handlers.started(std::move(started));
            }
        }
    } else if (state->open) {
        log::warn("a task said nothing that is understood",
                  {{"why", hello ? "no output" : hello.error().message}});
    }
    state->peers.erase(peer);
}

}  // namespace lockstep
