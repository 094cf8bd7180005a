#include "job/trainer/pair_measurement.hpp"

#include "job/base/digest.hpp"
#include "job/base/unique_fd.hpp"
#include "job/collective/gloo.hpp"
#include "job/collective/memory_key_store.hpp"

#include <ATen/ATen.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kOrder = 512;  // of the matrices: 0.27 GFLOP a product
constexpr int kProducts = 6;
constexpr std::size_t kExchangeBytes = 8U << 20U;
constexpr int kExchanges = 2;
constexpr std::chrono::milliseconds kAgain{50};  // until the other one's program is up
constexpr std::size_t kFrameBytes = 1U << 20U;   // of what Gloo tells of an address: hundreds

std::chrono::milliseconds left_of(Clock::time_point end) {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()),
                    std::chrono::milliseconds{0});
}

bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) {
            return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

std::optional<std::string> receive(int fd, std::size_t size) {
    std::string out(size, '\0');
    return ::recv(fd, out.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size)
               ? std::optional{std::move(out)}
               : std::nullopt;
}

// A call on it waits no longer than until `end`.
void limit(int fd, Clock::time_point end) {
    const auto left = std::max(left_of(end), std::chrono::milliseconds{1});
    timeval time{};
    time.tv_sec = left.count() / 1000;
    time.tv_usec = static_cast<suseconds_t>(left.count() % 1000 * 1000);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

// The two nodes' connection; over it they tell each other where Gloo is to connect.
class PairStore final : public KeyStore {
  public:
    explicit PairStore(UniqueFd fd) : fd_(std::move(fd)) {}

    Status set(const std::string& key, std::string_view value) override {
        const auto sizes = std::to_string(key.size()) + " " + std::to_string(value.size());
        std::string head(32, ' ');
        head.replace(0, sizes.size(), sizes);
        values_[key] = value;
        return send_all(fd_.get(), head + key + std::string{value})
                   ? Status{}
                   : fail(Errc::unavailable, "the other node has left");
    }
    Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override {
        limit(fd_.get(), Clock::now() + timeout);
        while (!values_.contains(key)) {
            const auto head = receive(fd_.get(), 32);
            std::size_t name = 0;
            std::size_t size = 0;
            if (!head || std::sscanf(head->c_str(), "%zu %zu", &name, &size) != 2 ||
                name > kFrameBytes || size > kFrameBytes) {
                return fail(Errc::timed_out, "the other node does not answer");
            }
            auto item = receive(fd_.get(), name + size);
            if (!item) {
                return fail(Errc::timed_out, "the other node does not answer");
            }
            values_[item->substr(0, name)] = item->substr(name);
        }
        return values_[key];
    }

  private:
    UniqueFd fd_;
    std::map<std::string, std::string> values_;
};

Result<UniqueFd> accept_other(const PairTask& task, Clock::time_point end) {
    const bool six = task.address.find(':') != std::string::npos;
    UniqueFd server{::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int on = 1;
    ::setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage any{};
    any.ss_family = six ? AF_INET6 : AF_INET;
    // sin_port and sin6_port lie at the same place.
    reinterpret_cast<sockaddr_in*>(&any)->sin_port = htons(static_cast<std::uint16_t>(task.port));
    if (::bind(server.get(), reinterpret_cast<sockaddr*>(&any),
               six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) != 0 ||
        ::listen(server.get(), 8) != 0) {
        return fail(Errc::unavailable, std::string{"listen: "} + std::strerror(errno));
    }
    for (;;) {
        pollfd ready{server.get(), POLLIN, 0};
        if (::poll(&ready, 1, static_cast<int>(left_of(end).count())) <= 0) {
            return fail(Errc::timed_out, "the other node did not come");
        }
        UniqueFd fd{::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        if (!fd) {
            continue;
        }
        limit(fd.get(), std::min(end, Clock::now() + std::chrono::seconds{1}));
        const auto said = receive(fd.get(), task.token.size());
        if (said && equal_secret(*said, task.token) && send_all(fd.get(), task.token)) {
            return fd;
        }
    }
}

UniqueFd connect_to(const std::string& address, std::int32_t port, Clock::time_point end) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
        return {};
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, ::freeaddrinfo};
    UniqueFd fd{::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    limit(fd.get(), std::min(end, Clock::now() + std::chrono::seconds{1}));  // connect() as well
    return ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 ? std::move(fd) : UniqueFd{};
}

Result<UniqueFd> reach_other(const PairTask& task, Clock::time_point end) {
    while (Clock::now() < end) {
        for (const std::string& address : task.peers) {
            UniqueFd fd = connect_to(address, task.port, end);
            if (!fd || !send_all(fd.get(), task.token)) {
                continue;
            }
            const auto said = receive(fd.get(), task.token.size());
            if (said && equal_secret(*said, task.token)) {
                return fd;
            }
        }
        std::this_thread::sleep_for(kAgain);
    }
    return fail(Errc::timed_out, "the other node was not reached");
}

Result<std::unique_ptr<Communicator>> meet(const PairTask& task, Clock::time_point end) {
    GlooOptions options;
    options.rank = task.lead || task.alone ? 0 : 1;
    options.size = task.alone ? 1 : 2;
    options.address = task.address;
    options.shared_memory = false;  // it is the network that is measured
    options.connect_timeout = left_of(end);
    options.operation_timeout = left_of(end);
    MemoryKeyStore alone;
    if (task.alone) {
        return make_gloo(options, alone);
    }
    auto fd = task.lead ? accept_other(task, end) : reach_other(task, end);
    LOCKSTEP_TRY(fd);
    options.connect_timeout = std::max(left_of(end), std::chrono::milliseconds{1});
    options.operation_timeout = options.connect_timeout;
    PairStore store{std::move(*fd)};
    return make_gloo(options, store);
}

}  // namespace

Result<std::int64_t> measure_pair(const PairTask& task, std::chrono::milliseconds patience) {
    const auto end = Clock::now() + patience;
    const at::Tensor matrix = at::full({kOrder, kOrder}, 1.0 / kOrder);
    at::Tensor product = at::mm(matrix, matrix);  // the first one has libraries to load
    auto ranks = meet(task, end);
    LOCKSTEP_TRY(ranks);
    LOCKSTEP_TRY((*ranks)->barrier());
    const auto began = Clock::now();
    for (int i = 0; i < kProducts; ++i) {
        product = at::mm(product, matrix);
    }
    if (std::abs(product[0][0].item<float>() * kOrder - 1) > 1e-3F) {
        return fail(Errc::internal, "its processor computes wrongly");
    }
    std::vector<std::byte> bytes(kExchangeBytes);
    for (int i = 0; i < kExchanges; ++i) {
        for (std::int32_t root = 0; root < (*ranks)->size(); ++root) {
            LOCKSTEP_TRY((*ranks)->broadcast(bytes, root));
        }
    }
    LOCKSTEP_TRY((*ranks)->barrier());
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count();
}

}  // namespace lockstep
