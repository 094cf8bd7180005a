// What happens to jobs, as it happens: the messages of the event stream, and how the HTTP edge gets
// them. Control thread only.
#pragma once

#include "daemon/control/base/caller.hpp"
#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// One message of the event stream.
struct StreamMessage {
    std::int64_t seq = 0;  // 0: not resumable (telemetry)
    std::string topic;     // "job.<id>" (also matches "jobs"), "ranks.<id>", "steps.<id>.<metric>"
    std::string event;     // SSE event name: the event's kind, "ranks" or "steps"
    std::shared_ptr<const std::string> data;  // one line of JSON
    std::string user;          // owner of the job: others than admins see only their own
    bool newest_wins = false;  // for a slow reader the oldest of its kind may be left out
};

class JobStream {
  public:
    virtual ~JobStream() = default;

    // subscribe() calls `sink` on the control thread for every new message until the returned
    // handle is destroyed. replay() hands out the stored events after `after`, oldest first.
    using Sink = std::function<void(const StreamMessage&)>;
    virtual std::shared_ptr<void> subscribe(Sink sink) = 0;
    // Messages of the topics ranks.<id> and steps.<id>.<metric> are made only while somebody holds
    // what this returns. nullptr: no such unfinished job that the caller may see.
    virtual std::shared_ptr<void> follow(const Caller& /*caller*/, const std::string& /*topic*/) {
        return nullptr;
    }
    virtual Task<Result<std::vector<StreamMessage>>> replay(std::int64_t after,
                                                            std::size_t limit) = 0;
    virtual std::int64_t last_seq() const = 0;
};

}  // namespace lockstep
