#include "job/agent/preflight/errands.hpp"

#include "job/base/limits.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

using SteadyClock = std::chrono::steady_clock;
// The pipe's end in the forked process; everything above is closed, the claim's lock above all.
constexpr int kOut = 3;

void write_all(const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t count = ::write(kOut, at, size);
        if (count <= 0) {
            ::_exit(1);
        }
        at += count;
        size -= static_cast<std::size_t>(count);
    }
}

}  // namespace

std::size_t Errands::add(std::function<std::string()> work, std::chrono::milliseconds patience) {
    items_.push_back({std::move(work), patience, std::nullopt, false});
    return items_.size() - 1;
}

// In the forked process. Nothing comes back from here, no exception above all: it would end up in
// code that believes to be the agent.
[[noreturn]] void Errands::serve(int out) const noexcept {
    for (const int number : {SIGTERM, SIGINT, SIGURG}) {
        ::signal(number, SIG_DFL);
    }
    if (out != kOut) {
        ::dup2(out, kOut);
    }
    ::close_range(kOut + 1, ~0U, 0);
    const std::int32_t self = ::getpid();
    write_all(&self, sizeof(self));
    for (std::size_t i = next_; i < items_.size(); ++i) {
        std::string answer;
        try {
            answer = items_[i].work();
        } catch (...) {
            ::_exit(1);
        }
        const auto size =
            static_cast<std::uint32_t>(std::min<std::size_t>(answer.size(), limits::kErrandBytes));
        write_all(&size, sizeof(size));
        write_all(answer.data(), size);
    }
    ::_exit(0);
}

// Twice forked: its end is nobody's here, however late it comes.
bool Errands::start() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return false;
    }
    UniqueFd in{ends[0]};
    UniqueFd out{ends[1]};
    const pid_t middle = ::fork();
    if (middle < 0) {
        return false;
    }
    if (middle == 0) {
        if (::fork() != 0) {
            ::_exit(0);
        }
        serve(out.get());
    }
    while (::waitpid(middle, nullptr, 0) < 0 && errno == EINTR) {
    }
    ::fcntl(in.get(), F_SETFL, O_NONBLOCK);
    pipe_ = std::make_shared<Pipe>(io_, in.release());
    buffer_.clear();
    child_ = -1;
    begun_ = false;
    return true;
}

// False once the process has nothing more to say.
bool Errands::take_frames() {
    std::array<char, 16U << 10U> bytes{};
    bool open = true;
    for (;;) {
        const ssize_t count = ::read(pipe_->native_handle(), bytes.data(), bytes.size());
        if (count <= 0) {
            open = count < 0 && (errno == EAGAIN || errno == EINTR);
            break;
        }
        buffer_.append(bytes.data(), static_cast<std::size_t>(count));
    }
    if (!begun_ && buffer_.size() >= sizeof(std::int32_t)) {
        std::memcpy(&child_, buffer_.data(), sizeof(std::int32_t));
        buffer_.erase(0, sizeof(std::int32_t));
        begun_ = true;
    }
    std::uint32_t size = 0;
    while (begun_ && next_ < items_.size() && buffer_.size() >= sizeof(size)) {
        std::memcpy(&size, buffer_.data(), sizeof(size));
        if (size > limits::kErrandBytes || buffer_.size() - sizeof(size) < size) {
            break;
        }
        items_[next_].asked = true;
        items_[next_++].answer = buffer_.substr(sizeof(size), size);
        buffer_.erase(0, sizeof(size) + size);
    }
    if (!open) {
        child_ = -1;  // it has ended: its number may be another process's by now
    }
    return open;
}

void Errands::drop() {
    timer_.cancel();
    if (pipe_) {
        if (child_ > 0) {
            ::kill(child_, SIGKILL);  // its end of the pipe was open a moment ago: it lives
        }
        ErrorCode ignored;
        pipe_->close(ignored);
        pipe_.reset();
    }
    child_ = -1;
}

void Errands::cancel() {
    cancelled_ = true;
    if (pipe_) {
        ErrorCode ignored;
        pipe_->cancel(ignored);
    }
}

// To one process, until it has told everything or an item takes too long.
Task<void> Errands::listen(SteadyClock::time_point end) {
    const auto pipe = pipe_;
    std::size_t waiting_for = next_;
    auto until = std::min(end, SteadyClock::now() + items_[next_].patience);
    while (!cancelled_ && next_ < items_.size() && SteadyClock::now() < until) {
        timer_.expires_at(until);
        timer_.async_wait([pipe](const ErrorCode& failed) {
            if (!failed) {
                ErrorCode ignored;
                pipe->cancel(ignored);
            }
        });
        ErrorCode ec;
        co_await pipe->async_wait(Pipe::wait_read, into(ec));
        if (!take_frames()) {
            if (next_ < items_.size()) {
                items_[next_].asked = begun_;  // it has ended the process
            }
            break;
        }
        if (next_ != waiting_for && next_ < items_.size()) {
            waiting_for = next_;
            until = std::min(end, SteadyClock::now() + items_[next_].patience);
        }
    }
    if (!cancelled_ && next_ < items_.size() && until < end && SteadyClock::now() >= until) {
        items_[next_].asked = begun_;
    }
}

Task<void> Errands::run(std::chrono::milliseconds budget) {
    const auto end = SteadyClock::now() + budget;
    while (!cancelled_ && next_ < items_.size() && SteadyClock::now() < end) {
        if (!start()) {
            break;
        }
        co_await listen(end);
        if (child_ > 0 && next_ >= items_.size()) {
            child_ = -1;  // it ends by itself, or has
        }
        drop();
        if (next_ < items_.size()) {
            ++next_;  // this one hangs, or ended the process
        }
    }
}

}  // namespace lockstep
