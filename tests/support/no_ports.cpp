// Preloaded into an agent: every port is taken. The listener of the connect-back test is told so,
// too.
#include <dlfcn.h>
#include <sys/socket.h>

#include <cerrno>

extern "C" int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6) {
        errno = EADDRINUSE;
        return -1;
    }
    using Bind = int (*)(int, const sockaddr*, socklen_t);
    static const auto real = reinterpret_cast<Bind>(::dlsym(RTLD_NEXT, "bind"));
    return real(fd, address, size);
}
