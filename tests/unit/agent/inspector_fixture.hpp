// What the tests of NCCL's Inspector share: bodies that NCCL's own plugin has posted
// (tests/fixtures/inspector; driven by tests/support/inspector_rank.py), and who posts them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace lockstep::test {

inline std::string fixture(const std::string& name) {
    std::ifstream in{LOCKSTEP_SOURCE_DIR "/tests/fixtures/inspector/" + name, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
    return text;
}

// A client that blocks, for at most 20 s.
class Poster {
  public:
    explicit Poster(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const timeval patience{20, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    }
    ~Poster() { ::close(fd_); }
    Poster(const Poster&) = delete;
    Poster& operator=(const Poster&) = delete;
    void send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return;
            }
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    void done_sending() const { ::shutdown(fd_, SHUT_WR); }
    // As the plugin does: the first that comes, and "" for nothing.
    std::string answer() const {
        std::array<char, 512> buffer{};
        const auto got = ::recv(fd_, buffer.data(), buffer.size(), 0);
        return got <= 0 ? "" : std::string{buffer.data(), static_cast<std::size_t>(got)};
    }

  private:
    int fd_;
};

// The head that the plugin writes.
inline std::string request(const std::string& token, const std::string& body) {
    return "POST /v1/metrics HTTP/1.1\r\nHost: 127.0.0.1:4\r\nContent-Type: application/json\r\n"
           "Accept: application/json\r\nConnection: close\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\nAuthorization: Bearer " + token + "\r\n\r\n" + body;
}

}  // namespace lockstep::test
