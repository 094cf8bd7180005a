// What waits to be sent by remote write, and when the next try is due. No socket, no thread; one
// thread at a time.
#pragma once

#include "job/async/http_client.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace lockstep::telemetry {

struct RemoteRequest {
    std::string body;  // compressed
    std::size_t samples = 0;
};

// Requests in their order, as many as fit; the oldest go. What is being sent does not count.
class RemoteQueue {
  public:
    explicit RemoteQueue(std::size_t max_bytes) : max_bytes_(max_bytes) {}

    // Both return how many samples had to go.
    std::size_t push(RemoteRequest request);
    std::size_t put_back(RemoteRequest request);  // as the oldest: it is to be tried again
    RemoteRequest take();                         // the oldest; not empty()
    bool empty() const { return requests_.empty(); }
    std::size_t bytes() const { return bytes_; }
    std::size_t samples() const { return samples_; }

  private:
    std::size_t shrink();

    std::size_t max_bytes_;
    std::size_t bytes_ = 0;
    std::size_t samples_ = 0;
    std::deque<RemoteRequest> requests_;
};

// When to try again: 0.25 s, 0.5 s … 5 s after one failure after another, or when the receiver says
// (Retry-After), within 5 minutes.
class RemotePace {
  public:
    explicit RemotePace(const Clock& clock) : clock_(clock) {}

    void succeeded();
    void failed(std::optional<std::chrono::seconds> retry_after);
    std::chrono::milliseconds wait() const;  // 0 = now

  private:
    const Clock& clock_;
    std::chrono::milliseconds pause_{0};
    std::chrono::steady_clock::time_point due_{};
};

// What an answer means for the request: taken; refused, it would be again; to be tried again.
enum class RemoteVerdict { taken, refused, again };
RemoteVerdict judge(const Result<ClientResponse>& answer);
// Retry-After in seconds; a date counts as absent.
std::optional<std::chrono::seconds> retry_after(const ClientResponse& answer);

}  // namespace lockstep::telemetry
