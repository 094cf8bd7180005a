// A rank's connection to the agent of its node: reports, notices and the keys of its generation.
// Protocol: one JSON object per message over the Unix SEQPACKET socket LOCKSTEP_SOCKET;
// job/README.md lists the messages. The connection is owned by this object. Any thread may call any
// function; requests wait for each other, reports and notices never wait.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class RankClient {
  public:
    using Timeout = std::chrono::milliseconds;
    static constexpr Timeout kAnswerTimeout{30'000};

    // Connects to the socket at `path`. invalid: the path does not fit a socket address;
    // unavailable: nobody listens.
    static Result<std::unique_ptr<RankClient>> connect(const std::string& path);

    // Sends a finished report or another one-way message. Never blocks: when the agent does not
    // read fast enough the message is dropped and counted. False if it was dropped.
    bool send_now(std::string_view message);
    // {"op":"phase",…}: init, train, eval or checkpoint.
    bool phase(std::string_view name);
    // {"op":"checkpoint",…}: call it after the file is durable.
    bool checkpoint(std::int64_t step, const std::string& path);
    std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

    // Keys: at most limits::kKeyBytes; values: any bytes, at most limits::kValueBytes (and what
    // one message holds: exhausted otherwise).
    Status set(const std::string& key, std::string_view value);
    // not_found if nobody set it yet.
    Result<std::string> get(const std::string& key);
    // Returns when every key exists; timed_out names what is missing.
    Status wait(const std::vector<std::string>& keys, Timeout timeout);
    // Values in the order of the keys; not_found if one is missing.
    Result<std::vector<std::string>> multi_get(const std::vector<std::string>& keys);
    // Adds to a counter that starts at 0 and returns the new value.
    Result<std::int64_t> add(const std::string& key, std::int64_t delta);
    // Returns when every rank of the generation called it with this name.
    Status barrier(const std::string& name, Timeout timeout);

  private:
    explicit RankClient(UniqueFd socket) : socket_(std::move(socket)) {}

    Result<Json> ask(Json request, Timeout timeout);
    Status send_request(const std::string& text, std::chrono::steady_clock::time_point deadline);
    Result<Json> receive(std::int64_t id, std::chrono::steady_clock::time_point deadline);
    Status wait_for(short events, std::chrono::steady_clock::time_point deadline);

    UniqueFd socket_;
    std::atomic<std::int64_t> dropped_{0};
    std::mutex request_mutex_;  // one request at a time: guards next_id_, buffer_ and receiving
    std::int64_t next_id_ = 1;
    std::string buffer_;
};

}  // namespace lockstep
