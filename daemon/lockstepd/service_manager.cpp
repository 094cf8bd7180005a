#include "daemon/lockstepd/service_manager.hpp"

#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace lockstep {
namespace {

// Its value, and it is gone.
std::string take_variable(const char* name) {
    const char* value = std::getenv(name);
    std::string out = value == nullptr ? "" : value;
    ::unsetenv(name);
    return out;
}

}  // namespace

ServiceManager::ServiceManager() {
    const std::string path = take_variable("NOTIFY_SOCKET");
    const auto microseconds = to_int(take_variable("WATCHDOG_USEC"));
    const auto process = to_int(take_variable("WATCHDOG_PID"));
    if (path.empty() || path.size() >= sizeof(address_.sun_path) ||
        (path.front() != '/' && path.front() != '@')) {
        return;
    }
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, path.data(), path.size());
    if (path.front() == '@') {
        address_.sun_path[0] = '\0';  // abstract
    }
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    socket_ = UniqueFd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (microseconds && *microseconds > 0 && (!process || *process == ::getpid())) {
        every_ = std::chrono::microseconds{std::max<std::int64_t>(*microseconds / 2, 1)};
    }
}

void ServiceManager::tell(std::string_view state) const {
    if (socket_ && ::sendto(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL,
                            reinterpret_cast<const sockaddr*>(&address_), size_) < 0) {
        log::debug("the service manager cannot be notified", {{"what", std::strerror(errno)}});
    }
}

void ServiceManager::alive(std::chrono::steady_clock::time_point now) {
    if (every_.count() > 0 && now - last_ >= every_) {
        last_ = now;
        tell("WATCHDOG=1");
    }
}

}  // namespace lockstep
