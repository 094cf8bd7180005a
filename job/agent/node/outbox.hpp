// What goes to the daemon, in which order, and what must be kept until it is acknowledged.
// Pure (no I/O): the session asks next() for one message after another. Agent thread only.
//
// Order: control messages and key requests, then events as they were made, then batches, then the
// newest look at the GPUs; an event
// that was made after a batch and says so (DONE) waits for it. Events, batches and unanswered key
// requests survive a lost connection and are sent again by reconnected().
#pragma once

#include "job/base/limits.hpp"
#include "job/model/wire/batch.hpp"
#include "job/model/wire/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

class Outbox {
  public:
    struct Frame {
        bool binary = false;
        std::string bytes;
    };

    explicit Outbox(std::size_t batch_bytes_cap = limits::kUnacknowledgedBytes)
        : batch_bytes_cap_(batch_bytes_cap) {}

    // Sent once, forgotten when the connection is lost first.
    void control(const wire::AgentMessage& message);
    // The same, but behind every event and batch made so far: JOIN after a reconnect.
    void control_last(const wire::AgentMessage& message);
    // Numbers the event and keeps it until it is acknowledged. Events flagged `after_batches` are
    // sent once every batch made so far was sent.
    // What the rank has reported last comes first: the daemon may end the job with this.
    void event(wire::Exited message) { numbered(std::move(message), true); }
    void event(wire::Fault message) { numbered(std::move(message), false); }
    void event(wire::CheckpointSaved message) { numbered(std::move(message), false); }
    void event(wire::GpuXid message) { numbered(std::move(message), false); }
    void event(wire::Warned message) { numbered(std::move(message), false); }
    void event(wire::SaveAsked message) { numbered(std::move(message), false); }
    void event(wire::Done message) { numbered(std::move(message), true); }
    void event(wire::Bye message) { numbered(std::move(message), true); }
    // Keeps the batch until it is acknowledged; over the cap the oldest go and are counted.
    void batch(const Batch& batch);

    // The newest look at the GPUs; one that was not sent yet is forgotten. Not acknowledged.
    void gpus(std::string frame) { gpus_ = std::move(frame); }

    // The next message to send, or nothing.
    std::optional<Frame> next();
    // The connection is new; batches up to this number are durable. Events are sent again: the
    // daemon knows one by its rank or its number.
    void reconnected(std::uint64_t acked_batch);
    void disconnected() {
        control_.clear();
        last_control_.clear();
        gpus_.reset();
    }
    void acknowledge(std::uint64_t event, std::uint64_t batch);

    bool settled() const { return events_.empty() && batches_.empty(); }
    std::uint64_t dropped_rows() const { return dropped_rows_; }
    std::size_t batch_bytes() const { return batch_bytes_; }

  private:
    struct Event {
        std::string bytes;
        std::uint64_t after_batch = 0;
    };
    struct KeptBatch {
        std::string bytes;
        std::size_t rows = 0;
    };
    template <class M>
    void numbered(M message, bool after_batches);
    std::optional<Frame> next_event();
    std::optional<Frame> next_batch();

    std::size_t batch_bytes_cap_;
    std::deque<std::string> control_;
    std::deque<std::string> last_control_;
    std::optional<std::string> gpus_;
    std::map<std::uint64_t, Event> events_;       // by event number, unacknowledged
    std::map<std::uint64_t, KeptBatch> batches_;  // by seq, unacknowledged
    std::uint64_t last_event_ = 0;
    std::uint64_t last_batch_ = 0;
    std::uint64_t sent_event_ = 0;
    std::uint64_t sent_batch_ = 0;
    std::size_t batch_bytes_ = 0;
    std::uint64_t dropped_rows_ = 0;
};

}  // namespace lockstep
