#include "job/agent/torch_store/store_guard.hpp"

#include "job/base/log.hpp"
#include "job/base/machine.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

std::set<net::ip::address> parse_all(const std::vector<std::string>& texts) {
    std::set<net::ip::address> out;
    for (const std::string& text : texts) {
        ErrorCode ec;
        const auto address = net::ip::make_address(text, ec);
        if (!ec) {
            out.insert(plain_address(address));
        }
    }
    return out;
}

bool socket_end(int fd, decltype(&::getpeername) which, tcp::endpoint& out) {
    sockaddr_storage bytes{};
    socklen_t size = sizeof(bytes);
    if (which(fd, reinterpret_cast<sockaddr*>(&bytes), &size) != 0 || size > out.capacity()) {
        return false;
    }
    std::memcpy(out.data(), &bytes, size);
    out.resize(size);
    return true;
}

bool is_established(int fd) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace

StoreGuard::StoreGuard(Options options)
    : options_(std::move(options)),
      nodes_(parse_all(options_.nodes)),
      own_(parse_all(options_.own)),
      all_users_mapped_(maps_all_users()) {
    if (!options_.nodes_known) {
        log::info(
            "not every address of the job's nodes is known: the store for the ranks admits "
            "other machines, too");
    }
}

bool StoreGuard::is_own(const net::ip::address& address, const net::ip::address& here) const {
    return address.is_loopback() || address == here || own_.contains(address);
}

StoreGuard::Verdict StoreGuard::judge(const tcp::endpoint& there, const tcp::endpoint& here) {
    const auto from = plain_address(there.address());
    if (!is_own(from, plain_address(here.address()))) {
        return !options_.nodes_known || nodes_.contains(from) ? Verdict::admitted
                                                              : Verdict::stranger;
    }
    const SocketOwners::Owner owner = owners_.of(there, here);
    switch (owner.kind) {
        case SocketOwners::Kind::known:
            // Root reads the ranks' memory anyway; in a container they often are root.
            if (owner.uid == options_.uid || owner.uid == 0) {
                return Verdict::admitted;
            }
            // Here everybody who has no number of their own has this one.
            return owner.uid == kOverflowUser && !all_users_mapped_ ? unknown_owner()
                                                                    : Verdict::another_user;
        case SocketOwners::Kind::gone:
            return Verdict::gone;
        case SocketOwners::Kind::absent:
            return Verdict::not_found;
        case SocketOwners::Kind::unknown:
            break;
    }
    return unknown_owner();
}

StoreGuard::Verdict StoreGuard::unknown_owner() {
    if (!std::exchange(owner_unknown_told_, true)) {
        log::warn(
            "the kernel does not say whose a connection is: the store for the ranks admits "
            "every user of this machine");
    }
    return Verdict::admitted;
}

bool StoreGuard::admits(int fd) {
    tcp::endpoint there;
    tcp::endpoint here;
    if (!socket_end(fd, &::getpeername, there) || !socket_end(fd, &::getsockname, here)) {
        return false;  // it is gone
    }
    Verdict verdict = judge(there, here);
    if (verdict == Verdict::not_found) {
        // Closed meanwhile; or what comes from here by way of another machine (NAT), or is bound to
        // a device, whose sockets the kernel does not find by their addresses.
        verdict = is_established(fd) ? unknown_owner() : Verdict::gone;
    }
    if (verdict == Verdict::admitted || verdict == Verdict::gone) {
        return verdict == Verdict::admitted;
    }
    const std::string who =
        verdict == Verdict::stranger
            ? plain_address(there.address()).to_string() + ", which is no node of this job"
            : "a process of another user on this node";
    if (told_ < kTold && told_of_.insert(who).second) {
        ++told_;
        log::warn("a connection to the store for the ranks is refused", {{"peer", who}});
        if (options_.tell) {
            options_.tell("the store where the ranks meet has refused a connection of " + who);
        }
    }
    return false;
}

std::vector<std::string> own_addresses() {
    std::vector<std::string> out;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        return out;
    }
    for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
        const bool up = (item->ifa_flags & IFF_UP) != 0;
        if (item->ifa_addr == nullptr || !up) {
            continue;
        }
        tcp::endpoint end;
        const int family = item->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) {
            continue;
        }
        const std::size_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(end.data(), item->ifa_addr, size);
        end.resize(size);
        const auto address = plain_address(end.address());
        std::string text = address.to_string();
        if (!address.is_loopback() && std::find(out.begin(), out.end(), text) == out.end()) {
            out.push_back(std::move(text));
        }
    }
    ::freeifaddrs(list);
    return out;
}

}  // namespace lockstep
