#include "daemon/telemetry/remote_write/remote_queue.hpp"

#include "daemon/telemetry/telemetry_limits.hpp"
#include "job/base/check.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::telemetry {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kFirstPause = 250ms;
constexpr std::chrono::milliseconds kLongestPause = 5s;

}  // namespace

std::size_t RemoteQueue::push(RemoteRequest request) {
    bytes_ += request.body.size();
    samples_ += request.samples;
    requests_.push_back(std::move(request));
    return shrink();
}

std::size_t RemoteQueue::put_back(RemoteRequest request) {
    bytes_ += request.body.size();
    samples_ += request.samples;
    requests_.push_front(std::move(request));
    return shrink();
}

std::size_t RemoteQueue::shrink() {
    std::size_t gone = 0;
    while (bytes_ > max_bytes_ && !requests_.empty()) {
        gone += take().samples;
    }
    return gone;
}

RemoteRequest RemoteQueue::take() {
    LOCKSTEP_CHECK(!requests_.empty());
    RemoteRequest out = std::move(requests_.front());
    requests_.pop_front();
    bytes_ -= out.body.size();
    samples_ -= out.samples;
    return out;
}

void RemotePace::succeeded() {
    pause_ = 0ms;
    due_ = clock_.steady();
}

void RemotePace::failed(std::optional<std::chrono::seconds> retry_after) {
    pause_ = pause_ == 0ms ? kFirstPause : std::min(2 * pause_, kLongestPause);
    std::chrono::milliseconds wait = pause_;
    if (retry_after) {
        wait =
            std::clamp<std::chrono::milliseconds>(*retry_after, pause_, limits::kRemoteRetryAfter);
    }
    due_ = clock_.steady() + wait;
}

std::chrono::milliseconds RemotePace::wait() const {
    const auto left = due_ - clock_.steady();
    return std::max(0ms, std::chrono::ceil<std::chrono::milliseconds>(left));
}

RemoteVerdict judge(const Result<ClientResponse>& answer) {
    if (!answer || answer->status == 429 || answer->status >= 500) {
        return RemoteVerdict::again;
    }
    return answer->status >= 200 && answer->status < 300 ? RemoteVerdict::taken
                                                         : RemoteVerdict::refused;
}

std::optional<std::chrono::seconds> retry_after(const ClientResponse& answer) {
    const auto seconds = to_int(trim(answer.header("retry-after")));
    if (!seconds || *seconds < 0) {
        return std::nullopt;
    }
    return std::chrono::seconds{
        std::min<std::int64_t>(*seconds, limits::kRemoteRetryAfter.count())};
}

}  // namespace lockstep::telemetry
