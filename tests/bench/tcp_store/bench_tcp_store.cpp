// 2,000 of torch's own TCPStore clients meet at a store: once at the agent's, once at torch's, each
// in a process of its own on this machine. Prints "name value unit" lines for tests/bench/run.
//
//   bench_tcp_store [clients] [ours|torch]
//
// A client does what init_process_group of one NCCL or Gloo group makes of it: connect and count
// itself in, arrive at a barrier (ADD), set its own address, get its neighbour's and rank 0's.
//   turns  one client after another, as ranks come whose start-up takes differently long: how fast
//          the store answers while 2,000 are connected. Client and server never run at once.
//   storm  all at once, each a thread that blocks in torch's code, with barriers that all wait at.
//          On few cores the clients' own work is most of it, whatever the store.
#include "job/agent/preflight/held_port.hpp"
#include "job/agent/torch_store/tcp_store.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::uint8_t>;
constexpr std::chrono::seconds kTimeout{120};

double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
}

// User and system time.
double seconds_of(const rusage& usage) {
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Of this process: the clients.
double own_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return seconds_of(usage);
}

[[noreturn]] void serve_ours(int tell) {
    lockstep::net::io_context io{1};
    lockstep::TaskGroup tasks{io};
    auto port = lockstep::HeldPort::hold("127.0.0.1");
    auto store = lockstep::TcpStore::listen(tasks, port->fd());
    const std::uint16_t number = store ? static_cast<std::uint16_t>(port->number()) : 0;
    if (::write(tell, &number, sizeof(number)) == sizeof(number)) {
        io.run();
    }
    std::_Exit(1);
}

[[noreturn]] void serve_torch(int tell) {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    const c10d::TCPStore store{"127.0.0.1", options};
    const std::uint16_t number = store.getPort();
    if (::write(tell, &number, sizeof(number)) == sizeof(number)) {
        for (;;) {
            ::pause();
        }
    }
    std::_Exit(1);
}

// Forked before this process has a thread.
struct Server {
    pid_t pid = -1;
    std::uint16_t port = 0;

    explicit Server(bool ours) {
        int ends[2];
        if (::pipe(ends) != 0) {
            std::abort();
        }
        pid = ::fork();
        if (pid == 0) {
            ours ? serve_ours(ends[1]) : serve_torch(ends[1]);
        }
        if (::read(ends[0], &port, sizeof(port)) != sizeof(port) || port == 0) {
            std::fprintf(stderr, "no server\n");
            std::exit(1);
        }
        ::close(ends[0]);
        ::close(ends[1]);
    }
    // User and system time of the server, in seconds.
    double end() const {
        ::kill(pid, SIGKILL);
        rusage usage{};
        ::wait4(pid, nullptr, 0, &usage);
        return seconds_of(usage);
    }
};

void store_barrier(c10d::TCPStore& store, const std::string& name, int clients) {
    const auto count = store.add(name, 1);
    if (count == clients) {
        store.set(name + "/last", Bytes{1});
    }
    store.wait({name + "/last"}, kTimeout);
}

struct Phases {
    double connect = 0;
    double exchange = 0;
    double cpu = 0;  // of the clients, in both
};

void run_client(int rank, int clients, std::uint16_t port, std::barrier<>& together,
                Clock::time_point& connected) {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.numWorkers = static_cast<std::size_t>(clients);
    options.timeout = kTimeout;
    c10d::TCPStore store{"127.0.0.1", options};
    store_barrier(store, "joined", clients);
    if (rank == 0) {
        connected = Clock::now();
    }
    store.set("address/" + std::to_string(rank), Bytes(128, 'a'));
    if (rank == 0) {
        store.set("unique_id", Bytes(128, 'u'));
    }
    if (store.get("unique_id").size() != 128 ||
        store.get("address/" + std::to_string((rank + 1) % clients)).size() != 128) {
        std::abort();
    }
    store_barrier(store, "ready", clients);
    together.arrive_and_wait();  // the clock stops before clients are destroyed
    together.arrive_and_wait();
}

Phases run_clients(int clients, std::uint16_t port) {
    std::barrier together{clients + 1};
    Clock::time_point connected;
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(clients));
    const double cpu = own_seconds();
    const auto began = Clock::now();
    for (int rank = 0; rank < clients; ++rank) {
        threads.emplace_back([&, rank] { run_client(rank, clients, port, together, connected); });
    }
    together.arrive_and_wait();
    const double all = seconds_since(began);
    const double spent = own_seconds() - cpu;
    together.arrive_and_wait();
    for (std::thread& thread : threads) {
        thread.join();
    }
    const double joined = std::chrono::duration<double>(connected - began).count();
    return {joined, all - joined, spent};
}

// The last to come wakes nobody: nobody waits.
double run_turns(int clients, std::uint16_t port) {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.numWorkers = static_cast<std::size_t>(clients);
    options.timeout = kTimeout;
    std::vector<std::unique_ptr<c10d::TCPStore>> stores;
    const auto began = Clock::now();
    for (int rank = 0; rank < clients; ++rank) {
        stores.push_back(std::make_unique<c10d::TCPStore>("127.0.0.1", options));
        stores.back()->set("address/" + std::to_string(rank), Bytes(128, 'a'));
        stores.back()->add("joined", 1);
    }
    stores.front()->set("unique_id", Bytes(128, 'u'));
    for (int rank = 0; rank < clients; ++rank) {
        c10d::TCPStore& store = *stores[static_cast<std::size_t>(rank)];
        if (store.get("unique_id").size() != 128 ||
            store.get("address/" + std::to_string((rank + 1) % clients)).size() != 128) {
            std::abort();
        }
        store.add("ready", 1);
    }
    return seconds_since(began);
}

void measure(const std::string& name, bool ours, int clients) {
    const Server calm{ours};
    std::printf("%s_turns %.4f s\n", name.c_str(), run_turns(clients, calm.port));
    std::printf("%s_turns_server_cpu %.4f s\n", name.c_str(), calm.end());
    std::fflush(stdout);
}

void measure_storm(const std::string& name, bool ours, int clients) {
    const Server server{ours};
    const Phases phases = run_clients(clients, server.port);
    std::printf("%s_storm %.4f s\n", name.c_str(), phases.connect + phases.exchange);
    std::printf("%s_storm_clients_cpu %.4f s\n", name.c_str(), phases.cpu);
    std::printf("%s_storm_server_cpu %.4f s\n", name.c_str(), server.end());
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const int clients = argc > 1 ? std::atoi(argv[1]) : 2000;
    const std::string only = argc > 2 ? argv[2] : "";
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    // In a process each: what one run leaves behind (threads, memory) is not the next one's.
    for (const bool ours : {true, false}) {
        const std::string name = ours ? "ours" : "torch";
        if (!only.empty() && only != name) {
            continue;
        }
        for (const auto what : {measure, measure_storm}) {
            const pid_t pid = ::fork();
            if (pid == 0) {
                what(name, ours, clients);
                std::_Exit(0);
            }
            int status = 0;
            ::waitpid(pid, &status, 0);
            if (status != 0) {
                std::fprintf(stderr, "%s: failed\n", name.c_str());
                return 1;
            }
        }
    }
    return 0;
}
