#include "job/collective/peer_keys.hpp"

#include "job/base/digest.hpp"
#include "job/base/limits.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

using PeerClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kConnectAgain{50};  // until the other one's program is up
constexpr std::size_t kSizes = 32;                      // characters before each frame

std::chrono::milliseconds time_until(PeerClock::time_point end) {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - PeerClock::now()),
                    std::chrono::milliseconds{0});
}

bool send_bytes(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) {
            return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

std::optional<std::string> receive_bytes(int fd, std::size_t size) {
    std::string out(size, '\0');
    return ::recv(fd, out.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size)
               ? std::optional{std::move(out)}
               : std::nullopt;
}

// Calls on it wait no longer than that; 0: for ever.
void limit_calls(int fd, std::chrono::milliseconds receive, std::chrono::milliseconds send) {
    const auto set = [fd](int option, std::chrono::milliseconds value) {
        timeval time{};
        time.tv_sec = value.count() / 1000;
        time.tv_usec = static_cast<suseconds_t>(value.count() % 1000 * 1000);
        ::setsockopt(fd, SOL_SOCKET, option, &time, sizeof time);
    };
    set(SO_RCVTIMEO, receive);
    set(SO_SNDTIMEO, send);
}

// Who holds up a greeting holds up nobody else for long.
void limit_greeting(int fd, PeerClock::time_point end) {
    const auto left = std::clamp<std::chrono::milliseconds>(
        time_until(end), std::chrono::milliseconds{1}, std::chrono::seconds{1});
    limit_calls(fd, left, left);
}

Result<UniqueFd> accept_peer(const PeerMeeting& meeting, PeerClock::time_point end) {
    const bool six = meeting.address.find(':') != std::string::npos;
    UniqueFd server{::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int on = 1;
    ::setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage any{};
    any.ss_family = six ? AF_INET6 : AF_INET;
    // sin_port and sin6_port lie at the same place.
    reinterpret_cast<sockaddr_in*>(&any)->sin_port =
        htons(static_cast<std::uint16_t>(meeting.port));
    // Whoever had the port before, a test that was ended, may need a moment to go.
    while (::bind(server.get(), reinterpret_cast<sockaddr*>(&any),
                  six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) != 0) {
        if (errno != EADDRINUSE || PeerClock::now() >= end) {
            return fail(Errc::unavailable, std::string{"listen: "} + std::strerror(errno));
        }
        std::this_thread::sleep_for(kConnectAgain);
    }
    if (::listen(server.get(), 8) != 0) {
        return fail(Errc::unavailable, std::string{"listen: "} + std::strerror(errno));
    }
    for (;;) {
        pollfd ready{server.get(), POLLIN, 0};
        if (::poll(&ready, 1, static_cast<int>(time_until(end).count())) <= 0) {
            return fail(Errc::timed_out, "the other node did not come");
        }
        UniqueFd fd{::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        if (!fd) {
            continue;
        }
        limit_greeting(fd.get(), end);
        const auto said = receive_bytes(fd.get(), meeting.token.size());
        if (said && equal_secret(*said, meeting.token) && send_bytes(fd.get(), meeting.token)) {
            return fd;
        }
    }
}

UniqueFd connect_to(const std::string& address, std::int32_t port, PeerClock::time_point end) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
        return {};
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, ::freeaddrinfo};
    UniqueFd fd{::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    limit_greeting(fd.get(), end);  // connect() as well
    return ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 ? std::move(fd) : UniqueFd{};
}

Result<UniqueFd> reach_peer(const PeerMeeting& meeting, PeerClock::time_point end) {
    while (PeerClock::now() < end) {
        for (const std::string& address : meeting.peers) {
            UniqueFd fd = connect_to(address, meeting.port, end);
            if (!fd || !send_bytes(fd.get(), meeting.token)) {
                continue;
            }
            const auto said = receive_bytes(fd.get(), meeting.token.size());
            if (said && equal_secret(*said, meeting.token)) {
                return fd;
            }
        }
        std::this_thread::sleep_for(kConnectAgain);
    }
    return fail(Errc::timed_out, "the other node was not reached");
}

}  // namespace

Result<UniqueFd> meet_peer(const PeerMeeting& meeting, PeerClock::time_point end) {
    return meeting.lead ? accept_peer(meeting, end) : reach_peer(meeting, end);
}

PeerKeyStore::PeerKeyStore(UniqueFd connection, bool shared)
    : fd_(std::move(connection)), shared_(shared) {
    limit_calls(fd_.get(), std::chrono::milliseconds{0}, limits::kPeerKeySend);
    reader_ = std::thread{[this] { receive_all(); }};
}

PeerKeyStore::~PeerKeyStore() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    reader_.join();
}

void PeerKeyStore::receive_all() {
    for (;;) {
        const auto sizes = receive_bytes(fd_.get(), kSizes);
        std::size_t name = 0;
        std::size_t size = 0;
        std::optional<std::string> item;
        if (sizes && std::sscanf(sizes->c_str(), "%zu %zu", &name, &size) == 2 &&
            name <= limits::kPeerKeyBytes && size <= limits::kPeerKeyBytes) {
            item = receive_bytes(fd_.get(), name + size);
        }
        const std::lock_guard lock{mutex_};
        received_ += name + size;
        gone_ = !item || received_ > limits::kPeerKeysBytes;
        if (!gone_) {
            values_.try_emplace(item->substr(0, name), item->substr(name));
        }
        changed_.notify_all();
        if (gone_) {
            ::shutdown(fd_.get(), SHUT_RDWR);  // nobody waits for this end
            return;
        }
    }
}

Status PeerKeyStore::set(const std::string& key, std::string_view value) {
    std::string frame = std::to_string(key.size()) + " " + std::to_string(value.size());
    frame.resize(kSizes, ' ');
    frame += key;
    frame += value;
    {
        const std::lock_guard lock{mutex_};
        values_.try_emplace(key, value);
    }
    changed_.notify_all();
    const std::lock_guard lock{sending_};
    return send_bytes(fd_.get(), frame) ? Status{}
                                        : fail(Errc::unavailable, "the other node has left");
}

Result<std::string> PeerKeyStore::wait(const std::string& key, std::chrono::milliseconds timeout) {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, timeout, [&] { return (gone_ && !shared_) || values_.contains(key); });
    const auto found = values_.find(key);
    if (found != values_.end()) {
        return found->second;
    }
    return gone_ ? fail(Errc::unavailable, "the other node has left")
                 : fail(Errc::timed_out, "the other node does not answer");
}

bool PeerKeyStore::left() {
    const std::lock_guard lock{mutex_};
    return gone_;
}

}  // namespace lockstep
