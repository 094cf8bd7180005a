// The agent's store in a process of its own: prints its port, serves until its standard input ends.
#include "job/agent/preflight/held_port.hpp"
#include "job/agent/torch_store/tcp_store.hpp"

#include <unistd.h>

#include <cstdio>

namespace {

lockstep::Task<void> until_input_ends(std::unique_ptr<lockstep::TcpStore> store,
                                      lockstep::net::io_context& io) {
    lockstep::net::posix::stream_descriptor input{io, ::dup(STDIN_FILENO)};
    lockstep::ErrorCode ec;
    while (!ec) {
        char byte = 0;
        co_await input.async_read_some(lockstep::net::buffer(&byte, 1), lockstep::into(ec));
    }
    const auto totals = store->totals();
    std::printf("queries %llu refused %llu\n", static_cast<unsigned long long>(totals.queries),
                static_cast<unsigned long long>(totals.refused));
}

}  // namespace

int main(int argc, char** argv) {
    lockstep::net::io_context io{1};
    lockstep::TaskGroup tasks{io};
    const auto port = lockstep::HeldPort::hold(argc > 1 ? argv[1] : "127.0.0.1");
    if (!port) {
        std::fprintf(stderr, "%s\n", port.error().message.c_str());
        return 1;
    }
    auto store = lockstep::TcpStore::listen(tasks, port->fd());
    if (!store) {
        std::fprintf(stderr, "%s\n", store.error().message.c_str());
        return 1;
    }
    std::printf("%d\n", port->number());
    std::fflush(stdout);
    tasks.spawn("input", until_input_ends(std::move(*store), io));
    io.run();
    return 0;
}
