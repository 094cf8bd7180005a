// lockstep-exec's end of the socket, as far as a test says. Its peer takes it for root's only where
// the test runs as root.
#pragma once

#include "job/base/unique_fd.hpp"
#include "scheduler-integration/exec/order.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

class ExecListener {
  public:
    explicit ExecListener(const std::filesystem::path& path)
        : listening_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
        if (::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
                0 ||
            ::listen(listening_.get(), 64) != 0) {
            listening_.reset();
        }
    }
    // Whether somebody connects within so many milliseconds.
    bool waits(int patience) const {
        pollfd one{listening_.get(), POLLIN, 0};
        return ::poll(&one, 1, patience) > 0;
    }
    UniqueFd accept() const {
        return UniqueFd{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    }
    // nullptr: none that reads.
    static std::unique_ptr<exec::Order> read(int fd) {
        std::uint32_t head[2] = {0, 0};
        if (::recv(fd, head, sizeof head, MSG_WAITALL) != sizeof head) {
            return nullptr;
        }
        std::string body(head[1], '\0');
        auto out = std::make_unique<exec::Order>();
        const bool good = ::recv(fd, body.data(), body.size(), MSG_WAITALL) ==
                              static_cast<ssize_t>(body.size()) &&
                          exec::read_order(reinterpret_cast<const unsigned char*>(body.data()),
                                           body.size(), *out) == nullptr;
        return good ? std::move(out) : nullptr;
    }
    static void answer(int fd, exec::Status status, const std::string& message) {
        exec::ReplyHead head{};
        head.magic = exec::kMagic;
        head.status = static_cast<std::uint32_t>(status);
        head.message_size = static_cast<std::uint32_t>(message.size());
        ::send(fd, &head, sizeof head, MSG_NOSIGNAL);
        ::send(fd, message.data(), message.size(), MSG_NOSIGNAL);
    }

  private:
    UniqueFd listening_;
};

// Answers one connection after the other.
class FakeExec {
  public:
    // Nothing: it keeps the connection, and does not answer.
    using Answer =
        std::function<std::optional<std::pair<exec::Status, std::string>>(const exec::Order&)>;
    FakeExec(const std::filesystem::path& path, Answer answer)
        : listener_(path), answer_(std::move(answer)), thread_([this] { serve(); }) {}
    FakeExec(const FakeExec&) = delete;
    FakeExec& operator=(const FakeExec&) = delete;
    ~FakeExec() {
        ending_ = true;
        thread_.join();
    }

  private:
    void serve() {
        while (!ending_) {
            if (!listener_.waits(20)) {
                continue;
            }
            UniqueFd fd = listener_.accept();
            const auto order = ExecListener::read(fd.get());
            const auto said = order ? answer_(*order) : std::nullopt;
            if (said) {
                ExecListener::answer(fd.get(), said->first, said->second);
            } else {
                unanswered_.push_back(std::move(fd));
            }
        }
    }

    ExecListener listener_;
    Answer answer_;
    std::vector<UniqueFd> unanswered_;
    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

}  // namespace lockstep
