// Who may connect to what the agent serves for the ranks of its job (tcp_store.hpp,
// horovod_rendezvous.hpp). Neither protocol asks anybody who they are, and the port is bound on
// every address (held_port.hpp), long before it is known where the nodes reach each other. So the
// one end that cannot be made up is looked at, where a connection comes from:
//
//   this machine            the job's own user, and root: containers (socket_owner.hpp)
//   a node of the world     admitted; whose process it is over there, nobody here can tell
//   anywhere else           closed
//
// To keep a rank out is worse than to let a stranger in: where the nodes' addresses are not all
// known every other machine is admitted, and where the kernel does not say whose a socket is every
// user of this one. Both are said. A rank has as its address one of its node's interfaces,
// whichever leads here: agents announce all of them (JOIN). Agent thread.
#pragma once

#include "job/agent/ranks/socket_owner.hpp"
#include "job/async/asio.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class StoreGuard {
  public:
    struct Options {
        // Of all nodes of the world; what is no address is left out.
        std::vector<std::string> nodes;
        bool nodes_known = true;       // false: `nodes` may lack some
        std::vector<std::string> own;  // of this machine, beside loopback
        uid_t uid = ::geteuid();
        // Somebody was refused who could be a rank that this does not know of; a sentence for the
        // job's user, at most kTold times. nullptr: nobody is told.
        std::function<void(std::string)> tell{};
    };
    enum class Verdict : std::uint8_t {
        admitted,
        stranger,      // from a machine that has no part in the job
        another_user,  // of this machine
        gone,          // nobody is there any more
        not_found,     // the kernel knows no such socket of this machine
    };
    static constexpr int kTold = 4;

    explicit StoreGuard(Options options);

    // About a connection that was accepted; `there` is the peer's end.
    Verdict judge(const tcp::endpoint& there, const tcp::endpoint& here);
    // The same of its socket; false is said in the log, and to options.tell.
    bool admits(int fd);

  private:
    bool is_own(const net::ip::address& address, const net::ip::address& here) const;

    Options options_;
    std::set<net::ip::address> nodes_;
    std::set<net::ip::address> own_;
    SocketOwners owners_;
    Verdict unknown_owner();

    bool owner_unknown_told_ = false;
    const bool all_users_mapped_;
    int told_ = 0;
    std::set<std::string> told_of_;
};

// This machine's addresses but for loopback, those of interfaces that are up; no scopes.
std::vector<std::string> own_addresses();

}  // namespace lockstep
