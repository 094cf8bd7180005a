#include "job/async/unix_socket.hpp"

#include "job/async/sleep.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kTryAgain = std::chrono::milliseconds{20};

Error no_socket(const std::filesystem::path& path, const char* what, int number) {
    return {Errc::unavailable,
            std::string{"cannot "} + what + " " + path.string() + ": " + std::strerror(number) +
                (number == ECONNREFUSED ? " (nobody on this machine listens there)" : "")};
}

// A path that fits sockaddr_un whatever the folder's length: by the folder's descriptor.
struct ShortPath {
    UniqueFd folder;
    std::string text;
};
Result<ShortPath> short_path(const std::filesystem::path& path) {
    ShortPath out{{}, path.string()};
    if (out.text.size() < sizeof(sockaddr_un::sun_path)) {
        return out;
    }
    out.folder = UniqueFd{::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!out.folder) {
        return fail(no_socket(path, "reach", errno));
    }
    out.text = "/proc/self/fd/" + std::to_string(out.folder.get()) + "/" + path.filename().string();
    if (out.text.size() >= sizeof(sockaddr_un::sun_path)) {
        return fail(no_socket(path, "reach", ENAMETOOLONG));
    }
    return out;
}

// Whether the other end is this user's, or root's; to root everybody's is good.
Status check_peer(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return fail(errno_error("SO_PEERCRED", errno));
    }
    const uid_t us = ::geteuid();
    if (us != 0 && peer.uid != us && peer.uid != 0) {
        return fail(Errc::denied, "the other end is of uid " + std::to_string(peer.uid) +
                                      ", this one of uid " + std::to_string(us));
    }
    return {};
}

Result<tcp::socket> carried(const net::any_io_executor& executor, UniqueFd socket) {
    tcp::socket out{executor};
    ErrorCode ec;
    out.assign(tcp::v4(), socket.get(), ec);
    if (ec) {
        return fail(Errc::unavailable, "a Unix socket: " + ec.message());
    }
    socket.release();
    return out;
}

}  // namespace

Result<net::local::stream_protocol::acceptor> listen_unix(net::io_context& io,
                                                          const std::filesystem::path& path,
                                                          int backlog) {
    const auto name = short_path(path);
    LOCKSTEP_TRY(name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
        return fail(no_socket(path, "replace", errno));
    }
    net::local::stream_protocol::acceptor out{io};
    ErrorCode ec;
    out.open(net::local::stream_protocol{}, ec);
    // The mode of the file is that of the descriptor less the umask: nobody gets in before chmod().
    if (!ec && ::fchmod(out.native_handle(), 0600) != 0) {
        ec = ErrorCode{errno, boost::system::system_category()};
    }
    if (!ec) {
        out.bind(net::local::stream_protocol::endpoint{name->text}, ec);
    }
    if (!ec && ::chmod(path.c_str(), 0600) != 0) {
        ec = ErrorCode{errno, boost::system::system_category()};
    }
    if (!ec) {
        out.listen(backlog, ec);
    }
    if (!ec) {
        out.non_blocking(true, ec);
    }
    if (ec) {
        return fail(Errc::unavailable, "cannot listen on " + path.string() + ": " + ec.message());
    }
    return out;
}

Task<Result<tcp::socket>> connect_unix(std::filesystem::path path,
                                       std::chrono::steady_clock::time_point deadline) {
    const net::any_io_executor executor = co_await net::this_coro::executor;
    net::steady_timer timer{executor};
    const auto name = short_path(path);
    LOCKSTEP_CO_TRY(name);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name->text.c_str(), name->text.size() + 1);
    for (;;) {
        UniqueFd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
        if (!socket) {
            co_return fail(no_socket(path, "connect to", errno));
        }
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
            0) {
            if (const Status good = check_peer(socket.get()); !good) {
                co_return fail(good.error().in(path.string()));
            }
            co_return carried(executor, std::move(socket));
        }
        // EAGAIN: so many wait there that this one has to wait here; a Unix socket tells nobody
        // when there is room.
        if (errno != EAGAIN) {
            co_return fail(no_socket(path, "connect to", errno));
        }
        if (std::chrono::steady_clock::now() + kTryAgain > deadline) {
            co_return fail(no_socket(path, "connect to", ETIMEDOUT));
        }
        co_await sleep_on(timer, kTryAgain);
    }
}

Result<tcp::socket> take_unix(net::io_context& io, net::local::stream_protocol::socket accepted) {
    ErrorCode ec;
    UniqueFd socket{accepted.release(ec)};
    if (ec) {
        return fail(Errc::unavailable, "a Unix socket: " + ec.message());
    }
    LOCKSTEP_TRY(check_peer(socket.get()));
    return carried(io.get_executor(), std::move(socket));
}

bool is_unix(const tcp::socket& socket) {
    int domain = 0;
    socklen_t size = sizeof domain;
    return ::getsockopt(const_cast<tcp::socket&>(socket).native_handle(), SOL_SOCKET, SO_DOMAIN,
                        &domain, &size) == 0 &&
           domain == AF_UNIX;
}

}  // namespace lockstep
