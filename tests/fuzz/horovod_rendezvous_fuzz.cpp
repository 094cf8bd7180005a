// The key store that Horovod's ranks speak HTTP to, over its real socket: whatever comes, it
// answers or hangs up, and is there for the next one.
#include "job/agent/horovod/horovod_rendezvous.hpp"
#include "job/agent/preflight/held_port.hpp"
#include "job/async/asio.hpp"
#include "job/async/task_group.hpp"

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace {

using namespace lockstep;

struct Store {
    net::io_context io;
    TaskGroup tasks{io};
    HeldPort port = HeldPort::hold("127.0.0.1").value();
    std::unique_ptr<HorovodRendezvous> server =
        HorovodRendezvous::listen(tasks, port.fd(), {4, 2, 2}).value();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static auto* const store = new Store;
    tcp::socket client{store->io};
    ErrorCode ec;
    client.connect(
        {net::ip::address_v4::loopback(), static_cast<std::uint16_t>(store->port.number())}, ec);
    if (ec) {
        std::abort();
    }
    if (::send(client.native_handle(), data, size, MSG_NOSIGNAL) < 0) {
        std::abort();
    }
    client.shutdown(tcp::socket::shutdown_send, ec);
    // Until it has hung up; a key that is waited for is not waited for by whoever has left.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    do {
        store->io.run_one_for(std::chrono::milliseconds{100});
        if (std::chrono::steady_clock::now() > until) {
            std::abort();
        }
    } while (store->server->totals().connections > 0);
    return 0;
}
