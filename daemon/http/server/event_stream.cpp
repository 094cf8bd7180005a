#include "daemon/http/server/event_stream.hpp"

#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
std::string format_event(Seq id, std::string_view kind, std::string_view data) {
    std::string out;
    out.reserve(data.size() + kind.size() + 48);
    if (id > 0) {
        out.append("id: ").append(std::to_string(id)).append("\n");
    }
    if (!kind.empty()) {
        out.append("event: ").append(kind).append("\n");
    }
    for (;;) {
        const auto end = data.find_first_of("\r\n");
        out.append("data: ").append(data.substr(0, end)).append("\n");
        if (end == std::string_view::npos) {
            break;
        }
        const bool pair = data.substr(end, 2) == "\r\n";
        data.remove_prefix(end + (pair ? 2 : 1));
    }
    out += '\n';
    return out;
}

EventStream::EventStream(net::io_context& io, Settings settings)
    : timer_(io), settings_(settings) {}

bool EventStream::push(Seq id, std::string_view kind, std::string_view data) {
    return push_raw(format_event(id, kind, data));
}

bool EventStream::push_raw(std::string text) {
    if (ended_) {
        return false;
    }
    if (queued_ == settings_.queue) {
        end(true);
        return false;
    }
    ++queued_;
    queue_ += text;
    timer_.cancel();
    return true;
}

bool EventStream::push_latest(std::string_view kind, std::string_view data) {
    if (ended_) {
        return false;
    }
    latest_.push_back(format_event(0, kind, data));
    latest_bytes_ += latest_.back().size();
    while (latest_bytes_ > limits::kStreamLatestBytes && latest_.size() > 1) {
        latest_bytes_ -= latest_.front().size();
        latest_.pop_front();
    }
    timer_.cancel();
    return true;
}

void EventStream::close() {
    end(false);
}

void EventStream::end(bool lagged) {
    if (!std::exchange(ended_, true)) {
        lagged_ = lagged;
        timer_.cancel();
    }
}

Task<std::optional<std::string>> EventStream::next() {
    while (queue_.empty() && latest_.empty() && !ended_) {
        const bool quiet = co_await sleep_on(timer_, settings_.heartbeat);
        if (quiet && queue_.empty() && latest_.empty() && !ended_) {
            co_return std::string{":\n\n"};
        }
    }
    if (queue_.empty() && latest_.empty()) {
        co_return std::nullopt;
    }
    queued_ = 0;
    latest_bytes_ = 0;
    std::string out = std::exchange(queue_, {});
    for (const std::string& one : std::exchange(latest_, {})) {
        out += one;
    }
    co_return out;
}

}  // namespace lockstep
