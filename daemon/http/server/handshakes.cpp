#include "daemon/http/server/handshakes.hpp"

#include "job/async/quiet_thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// The control thread goes first where there are fewer processors than threads.
constexpr int kHandshakeNice = 5;
constexpr unsigned kMostHandshakeThreads = 4;

}  // namespace

Handshakes::~Handshakes() {
    work_.reset();
    work_io_.stop();
    for (std::thread& one : threads_) {
        one.join();
    }
}

net::io_context& Handshakes::workers() {
    if (threads_.empty()) {
        work_.emplace(work_io_.get_executor());
        const unsigned count =
            std::clamp(std::thread::hardware_concurrency() / 2, 1U, kMostHandshakeThreads);
        for (unsigned i = 0; i < count; ++i) {
            threads_.push_back(quiet_thread([this] {
                ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kHandshakeNice);
                work_io_.run();
            }));
        }
    }
    return work_io_;
}

void Handshakes::grant(Line& line, Turn& turn) {
    ++line.busy;
    turn.has_ = true;
    turn.since_ = std::chrono::steady_clock::now();
    turn.at_ = busy_.insert(busy_.end(), &turn);
}

void Handshakes::put_in_line(const net::ip::address& key, Line& line) {
    if (!line.queued && !line.waiting.empty() && line.busy < caps_.address) {
        line.queued = true;
        next_.push_back(key);
    }
}

void Handshakes::grant_waiting() {
    while (busy_.size() < caps_.all && !next_.empty()) {
        const net::ip::address key = next_.front();
        next_.pop_front();
        const auto found = lines_.find(key);
        if (found == lines_.end()) {
            continue;  // all of them have left
        }
        Line& line = found->second;
        line.queued = false;
        if (line.waiting.empty() || line.busy >= caps_.address) {
            continue;
        }
        Turn& turn = *line.waiting.front();
        line.waiting.pop_front();
        --waiting_;
        grant(line, turn);
        turn.timer_->cancel();
        put_in_line(key, line);
    }
}

void Handshakes::drop_if_empty(const net::ip::address& key) {
    const auto found = lines_.find(key);
    if (found == lines_.end() || !found->second.waiting.empty() || found->second.busy > 0) {
        return;
    }
    if (found->second.queued) {
        next_.erase(std::remove(next_.begin(), next_.end(), key), next_.end());
    }
    lines_.erase(found);
}

void Handshakes::expire(Instant now) {
    // Those that are let in meanwhile are behind them.
    for (std::size_t left = busy_.size(); left > 0 && !busy_.empty(); --left) {
        Turn& oldest = *busy_.front();
        if (now - oldest.since_ < caps_.turn) {
            return;
        }
        oldest.release();
    }
}

Task<bool> Handshakes::Turn::wait() {
    if (cancelled_) {
        co_return false;
    }
    Line& line = of_.lines_[key_];
    if (of_.busy_.size() < of_.caps_.all && line.busy < of_.caps_.address && line.waiting.empty()) {
        of_.grant(line, *this);
        co_return true;
    }
    timer_.emplace(of_.io_, net::steady_timer::time_point::max());
    line.waiting.push_back(this);
    ++of_.waiting_;
    of_.put_in_line(key_, line);
    of_.grant_waiting();
    // Granted or cancelled, the timer has been cancelled: only then is there nothing to wait for.
    if (!has_) {
        ErrorCode ignored;
        co_await timer_->async_wait(into(ignored));
    }
    co_return !cancelled_;
}

void Handshakes::Turn::cancel() {
    cancelled_ = true;
    const auto found = of_.lines_.find(key_);
    if (!timer_ || has_ || found == of_.lines_.end()) {
        return;
    }
    auto& waiting = found->second.waiting;
    const auto at = std::find(waiting.begin(), waiting.end(), this);
    if (at != waiting.end()) {
        waiting.erase(at);
        --of_.waiting_;
        timer_->cancel();
        of_.drop_if_empty(key_);
    }
}

void Handshakes::Turn::release() {
    if (!std::exchange(has_, false)) {
        return;
    }
    of_.busy_.erase(at_);
    Line& line = of_.lines_.find(key_)->second;
    --line.busy;
    of_.put_in_line(key_, line);
    of_.drop_if_empty(key_);
    of_.grant_waiting();
}

}  // namespace lockstep
