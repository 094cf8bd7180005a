// A TCP port that is bound so that nobody else gets it, for the MASTER_PORT of rank 0.
// Held (bound, not listening) from JOIN until just before rank 0 is started, or for good where the
// agent itself serves on it (tcp_store.hpp): otherwise the rank must be able to bind it itself, so
// between release() and its bind() lies the start-up of the user's program, the only time in which
// another process could take the port. Without SO_REUSEADDR on our socket two agents never hold the
// same port. Agent thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

class HeldPort {
  public:
    // Binds the port on every address of the family of `address`: servers of frameworks bind the
    // wildcard, so it must be free there too. What the agent itself serves there is guarded by who
    // connects (store_guard.hpp), not by where it listens.
    // `number` 0: a free port, if possible below the kernel's ip_local_port_range: whoever binds
    // port 0 or connects could be given one of that between release() and the rank's bind().
    // Otherwise that port again, after a generation that used it; connections that linger in
    // TIME_WAIT do not keep it.
    static Result<HeldPort> hold(const std::string& address, std::int32_t number = 0);
    std::int32_t number() const { return number_; }
    void release() { fd_.reset(); }
    bool held() const { return static_cast<bool>(fd_); }
    int fd() const { return fd_.get(); }  // the bound socket; it stays this object's

  private:
    static Result<HeldPort> bind(const std::string& address, std::int32_t number, bool again);
    HeldPort(UniqueFd fd, std::int32_t number) : fd_(std::move(fd)), number_(number) {}
    UniqueFd fd_;
    std::int32_t number_ = 0;
};

// The network interface that has `address` ("lo", "eth0"), "" if none has.
std::string interface_of(const std::string& address);

}  // namespace lockstep
