// Whose the other end of a TCP connection is, where both ends are on this machine: a port has no
// owner's mode as a file has, so the kernel is asked (sock_diag(7)) for the user who made the
// socket. One exact lookup in microseconds, without privileges; nothing blocks. Agent thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace lockstep {

class SocketOwners {
  public:
    enum class Kind : std::uint8_t {
        known,
        gone,     // no process holds the socket any more
        absent,   // there is no such socket: closed, or seen from elsewhere than it is (NAT, VRF)
        unknown,  // the kernel does not tell
    };
    struct Owner {
        Kind kind = Kind::unknown;
        uid_t uid = 0;  // if known; in this process's user namespace
    };
    // Of the socket at `there` that is connected to `here`; IPv4-mapped addresses are IPv4's.
    Owner of(const tcp::endpoint& there, const tcp::endpoint& here);

  private:
    Owner ask(const tcp::endpoint& there, const tcp::endpoint& here);
    bool tells();

    UniqueFd netlink_;
    std::optional<bool> tells_;  // whether the kernel knows such questions; nothing: not tried yet
    std::uint32_t sequence_ = 0;
};

// `address` without a scope, IPv4 if it is IPv4-mapped: one address, one value.
net::ip::address plain_address(const net::ip::address& address);

}  // namespace lockstep
