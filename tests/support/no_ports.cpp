// Preloaded into an agent: every port that the kernel would choose is taken. The listener of the
// connect-back test is told so, too.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

extern "C" int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
    const bool ip = address->sa_family == AF_INET || address->sa_family == AF_INET6;
    // sin_port and sin6_port lie at the same place.
    if (ip && reinterpret_cast<const sockaddr_in*>(address)->sin_port == 0) {
        errno = EADDRINUSE;
        return -1;
    }
    using Bind = int (*)(int, const sockaddr*, socklen_t);
    static const auto real = reinterpret_cast<Bind>(::dlsym(RTLD_NEXT, "bind"));
    return real(fd, address, size);
}
