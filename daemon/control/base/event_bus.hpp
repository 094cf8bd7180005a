// Hands every event and telemetry snapshot to whoever follows the stream. Control thread only; a
// subscriber may unsubscribe from inside its own sink.
#pragma once

#include "daemon/control/base/job_stream.hpp"
#include "job/base/ids.hpp"
#include "job/model/event.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lockstep {

class EventBus {
  public:
    EventBus() : sinks_(std::make_shared<Sinks>()) {}

    // Until the handle is destroyed; the handle may outlive the bus.
    std::shared_ptr<void> subscribe(JobStream::Sink sink);
    void publish(const StreamMessage& message);
    bool has_subscribers() const { return !sinks_->list.empty(); }

  private:
    struct Sinks {
        std::map<std::uint64_t, std::shared_ptr<JobStream::Sink>> list;
        std::uint64_t next = 1;
    };
    std::shared_ptr<Sinks> sinks_;
};

// The stream's message for a stored event.
// An event as others may see it: the environment of a job is its owner's alone, who has it from
// /v1/jobs/{id}/spec.
std::string public_text(const Event& event);
StreamMessage stream_message(const Event& event, const std::string& user);
// Of an event that had no number yet (0) when its message was made.
void renumber(StreamMessage& message, Seq seq);

}  // namespace lockstep
