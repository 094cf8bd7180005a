// Who listens on this machine's loopback: a port there is anybody's who binds it first, so the
// kernel is asked whose socket it is before a token goes to one in clear. Reads /proc; any thread.
#pragma once

#include "job/async/asio.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::cli {

// The users whose sockets take connections to that address. Empty: none of this network namespace
// does, or the kernel does not tell (no /proc, a user outside this user namespace).
std::set<uid_t> listeners_at(const net::ip::address& address, std::uint16_t port);
// The first of them who is neither this user, root nor one of `known`. Nothing: there is none, or
// the kernel does not tell.
std::optional<uid_t> stranger_at(const net::ip::address& address, std::uint16_t port,
                                 const std::vector<uid_t>& known);
// "ada (uid 1001)", or the number alone.
std::string user_text(uid_t uid);

}  // namespace lockstep::cli
