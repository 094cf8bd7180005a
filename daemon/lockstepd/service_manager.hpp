// What the service manager is told of lockstepd: that it serves, that it lives, that it ends; as
// sd_notify(3) does, without its library. Nothing where nobody asks (NOTIFY_SOCKET is not set).
// Control thread.
#pragma once

#include "job/base/unique_fd.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <string_view>

namespace lockstep {

class ServiceManager {
  public:
    // Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: agents and ranks
    // are not to speak for lockstepd.
    ServiceManager();

    // "READY=1", "STOPPING=1", "STATUS=…". Does not wait; what cannot be sent is lost.
    void tell(std::string_view state) const;
    // Says that lockstepd lives, if it is time to: to be called at least once a second. Twice in
    // the time after which the manager would end it.
    void alive(std::chrono::steady_clock::time_point now);

  private:
    UniqueFd socket_;
    sockaddr_un address_{};
    socklen_t size_ = 0;
    std::chrono::microseconds every_{0};  // 0: there is no watchdog
    std::chrono::steady_clock::time_point last_{};
};

}  // namespace lockstep
