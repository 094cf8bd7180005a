// A TCP client that sends exactly the bytes it is given: what no HTTP library would send.
#pragma once

#include "job/base/unique_fd.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class RawClient {
  public:
    explicit RawClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const timeval patience{10, 0};
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connected_ = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    }
    bool connected() const { return connected_; }
    // False when the peer has gone.
    bool send(std::string_view bytes) {
        while (!bytes.empty()) {
            const auto sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return false;
            }
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }
    // One read; "" at the end or when nothing came in time (timed_out() tells).
    std::string read_some() {
        std::string out(64U << 10U, '\0');
        ssize_t got = 0;
        do {  // with a time limit, being stopped and continued interrupts it
            got = ::recv(fd_.get(), out.data(), out.size(), 0);
        } while (got < 0 && errno == EINTR);
        timed_out_ = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return out;
    }
    std::string read_to_end() {
        std::string all;
        for (auto piece = read_some(); !piece.empty(); piece = read_some()) {
            all += piece;
        }
        return all;
    }
    // Until `text` has arrived, or the end.
    std::string read_until(std::string_view text) {
        std::string all;
        while (all.find(text) == std::string::npos) {
            const auto piece = read_some();
            if (piece.empty()) {
                break;
            }
            all += piece;
        }
        return all;
    }
    bool timed_out() const { return timed_out_; }
    void finish_sending() { ::shutdown(fd_.get(), SHUT_WR); }
    int descriptor() const { return fd_.get(); }

  private:
    UniqueFd fd_;
    bool connected_ = false;
    bool timed_out_ = false;
};

// "HTTP/1.1 404 …" → 404; 0 when it is no answer.
inline int status_in(std::string_view answer) {
    return answer.size() > 12 && answer.starts_with("HTTP/1.1 ")
               ? std::stoi(std::string{answer.substr(9, 3)})
               : 0;
}

}  // namespace lockstep
