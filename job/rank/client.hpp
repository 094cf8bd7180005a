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
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class RankClient {
  public:
    using Timeout = std::chrono::milliseconds;

    // Connects to the socket at `path`. invalid: the path does not fit a socket address;
    // unavailable: nobody listens.
    static Result<std::unique_ptr<RankClient>> connect(const std::string& path);

    // Sends a finished report or another one-way message. Never blocks: when the agent does not
    // read fast enough the message is dropped and counted. False if it was dropped.
    bool send_now(std::string_view message);
    // {"op":"phase",…}: init, train, eval or checkpoint.
    bool phase(std::string_view name);
    // {"op":"checkpoint",…}: call it after the file is durable. Waits a second at most for an
    // agent that is behind: unlike a report it must not be lost.
    bool checkpoint(std::int64_t step, const std::string& path);
    // {"op":"exception",…}, as the hooks of Python ranks send it: what ends this process. By `type`
    // the agent tells whose fault it is (job/model/failure.hpp).
    bool exception(std::string_view type, std::string_view message);
    std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

    // Keys: at most limits::kKeyBytes; values: any bytes, at most limits::kValueBytes: invalid
    // otherwise, before anything is sent. exhausted: more than one message holds.
    enum class Write {
        any,
        once  // may never be another value; agents answer further reads of it themselves
    };
    // conflict: the key was set once, or with `once` at all, to another value.
    Status set(const std::string& key, std::string_view value, Write write = Write::any);
    // All of them or none; each key once. In all at most as much as one message holds.
    Status multi_set(const std::vector<std::pair<std::string, std::string>>& values,
                     Write write = Write::any);
    struct Swap {
        bool swapped = false;
        std::optional<std::string> value;  // that stands now; nothing if there is no such key
    };
    // Sets `value` if the key's value is `expected`; "" = only if there is no such key.
    // conflict: it was set once.
    Result<Swap> cas(const std::string& key, std::string_view expected, std::string_view value);
    // not_found if nobody set it yet.
    Result<std::string> get(const std::string& key);
    // Returns when every key exists; timed_out names what is missing. More than 24 hours count as
    // 24 hours, here and at a barrier.
    Status wait(const std::vector<std::string>& keys, Timeout timeout);
    // Values in the order of the keys; not_found if one is missing, exhausted if they are more than
    // one answer holds.
    Result<std::vector<std::string>> multi_get(const std::vector<std::string>& keys);
    // Adds to a counter that starts at 0 and returns the new value.
    Result<std::int64_t> add(const std::string& key, std::int64_t delta);
    // Whether there was such a key. conflict: it was set once, and stays.
    Result<bool> remove(const std::string& key);
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
