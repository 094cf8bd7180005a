#include "job/agent/preflight/held_port.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <random>

namespace lockstep {
namespace {

std::string address_text(const sockaddr* address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes = nullptr;
    if (address->sa_family == AF_INET) {
        bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    } else if (address->sa_family == AF_INET6) {
        bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    }
    if (bytes == nullptr ||
        ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) {
        return "";
    }
    return text.data();
}

constexpr std::int32_t kLowest = 20'000;  // under it lie most ports that a service is known by
constexpr int kTries = 32;

// A port that nobody who asks the kernel for any port is given; 0 if this machine leaves none.
std::int32_t quiet_port() {
    std::ifstream range{"/proc/sys/net/ipv4/ip_local_port_range"};
    std::int32_t first = 0;
    if (!(range >> first) || first <= kLowest) {
        return 0;
    }
    thread_local std::minstd_rand numbers{std::random_device{}()};
    return std::uniform_int_distribution<std::int32_t>{kLowest, first - 1}(numbers);
}

}  // namespace

Result<HeldPort> HeldPort::hold(const std::string& address, std::int32_t number) {
    if (number != 0) {
        return bind(address, number, true);
    }
    for (int i = 0; i < kTries; ++i) {
        if (const std::int32_t port = quiet_port(); port != 0) {
            if (auto held = bind(address, port, false)) {
                return held;
            }
        }
    }
    return bind(address, 0, false);
}

Result<HeldPort> HeldPort::bind(const std::string& address, std::int32_t number, bool again) {
    const bool six = address.find(':') != std::string::npos;
    UniqueFd fd{::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!fd) {
        return fail(errno_error("socket", errno));
    }
    sockaddr_storage any{};
    any.ss_family = six ? AF_INET6 : AF_INET;  // address 0: any
    if (again) {
        const int on = 1;
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    if (number != 0) {
        // sin_port and sin6_port lie at the same place.
        reinterpret_cast<sockaddr_in*>(&any)->sin_port = htons(static_cast<std::uint16_t>(number));
    }
    socklen_t size = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    auto* where = reinterpret_cast<sockaddr*>(&any);
    if (::bind(fd.get(), where, size) != 0 || ::getsockname(fd.get(), where, &size) != 0) {
        return fail(errno_error("hold a port", errno));
    }
    const auto port = six ? reinterpret_cast<sockaddr_in6*>(&any)->sin6_port
                          : reinterpret_cast<sockaddr_in*>(&any)->sin_port;
    return HeldPort{std::move(fd), ntohs(port)};
}

std::string interface_of(const std::string& address) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        return "";
    }
    std::string found;
    for (const ifaddrs* item = list; item != nullptr && found.empty(); item = item->ifa_next) {
        if (item->ifa_addr != nullptr && address_text(item->ifa_addr) == address) {
            found = item->ifa_name;
        }
    }
    ::freeifaddrs(list);
    return found;
}

}  // namespace lockstep
