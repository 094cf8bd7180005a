// A slurmrestd that answers with whatever bytes a test wants: a thread, one connection at a time.
#pragma once

#include "job/base/unique_fd.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep {

struct RestRequest {
    std::string method;
    std::string target;
    std::string head;
    std::string body;
    std::string header(const std::string& name) const {
        const auto at = head.find("\r\n" + name + ": ");
        if (at == std::string::npos) {
            return "";
        }
        const auto from = at + name.size() + 4;
        return head.substr(from, head.find("\r\n", from) - from);
    }
};

inline std::string http(int status, const std::string& body,
                        const std::string& type = "application/json") {
    return "HTTP/1.1 " + std::to_string(status) +
           " WORD\r\nContent-Length: " + std::to_string(body.size()) + "\r\nContent-Type: " + type +
           "\r\n\r\n" + body;
}

class FakeRestd {
  public:
    // The bytes of the answer, after which the connection is closed; none: it is left open and
    // silent until the end.
    using Answer = std::function<std::optional<std::string>(const RestRequest&)>;

    explicit FakeRestd(Answer answer, const std::string& unix_path = {})
        : answer_(std::move(answer)),
          listener_(
              ::socket(unix_path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        if (unix_path.empty()) {
            sockaddr_in at{};
            at.sin_family = AF_INET;
            at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
            socklen_t size = sizeof at;
            ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
            url_ = "http://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
        } else {
            sockaddr_un at{};
            at.sun_family = AF_UNIX;
            std::strncpy(at.sun_path, unix_path.c_str(), sizeof at.sun_path - 1);
            ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
            url_ = "unix:" + unix_path;
        }
        ::listen(listener_.get(), 16);
        thread_ = std::thread{[this] { serve(); }};
    }
    FakeRestd(const FakeRestd&) = delete;
    FakeRestd& operator=(const FakeRestd&) = delete;
    ~FakeRestd() {
        over_ = true;
        ::shutdown(listener_.get(), SHUT_RDWR);
        thread_.join();
    }

    const std::string& url() const { return url_; }
    std::vector<RestRequest> requests() const {
        const std::lock_guard lock{mutex_};
        return requests_;
    }
    int connections() const { return connections_; }

  private:
    void serve() {
        while (!over_) {
            UniqueFd fd{::accept(listener_.get(), nullptr, nullptr)};
            if (!fd) {
                return;
            }
            ++connections_;
            auto request = read_request(fd.get());
            std::optional<std::string> answer;
            {
                const std::lock_guard lock{mutex_};
                requests_.push_back(request);
            }
            answer = answer_(request);
            if (!answer) {
                silent_.push_back(std::move(fd));
                continue;
            }
            std::string_view rest = *answer;
            while (!rest.empty()) {
                const ssize_t sent = ::send(fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
                if (sent <= 0) {
                    break;
                }
                rest.remove_prefix(static_cast<std::size_t>(sent));
            }
        }
    }

    RestRequest read_request(int fd) const {
        RestRequest out;
        char byte = 0;
        while (out.head.find("\r\n\r\n") == std::string::npos && readable(fd) &&
               ::recv(fd, &byte, 1, 0) == 1) {
            out.head += byte;
        }
        const auto first = out.head.find(' ');
        const auto second = out.head.find(' ', first + 1);
        out.method = out.head.substr(0, first);
        if (first != std::string::npos && second != std::string::npos) {
            out.target = out.head.substr(first + 1, second - first - 1);
        }
        const std::string length = out.header("Content-Length");
        const std::size_t wanted = length.empty() ? 0 : std::stoul(length);
        while (out.body.size() < wanted && readable(fd) && ::recv(fd, &byte, 1, 0) == 1) {
            out.body += byte;
        }
        return out;
    }
    bool readable(int fd) const {
        pollfd one{fd, POLLIN, 0};
        while (!over_) {
            if (::poll(&one, 1, 20) > 0) {
                return true;
            }
        }
        return false;
    }

    Answer answer_;
    UniqueFd listener_;
    std::string url_;
    std::vector<UniqueFd> silent_;
    mutable std::mutex mutex_;
    std::vector<RestRequest> requests_;
    std::atomic<int> connections_{0};
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace lockstep
