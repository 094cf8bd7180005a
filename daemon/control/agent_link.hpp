// One agent's connection as control sees it: decodes its messages and hands them to its job. Lives
// as long as the connection. Control thread only.
#pragma once

#include "daemon/control/agent_gate.hpp"
#include "job/model/batch.hpp"
#include "job/model/gpu_batch.hpp"
#include "job/model/wire.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

class JobActor;

class AgentLink final : public AgentSession, public std::enable_shared_from_this<AgentLink> {
  public:
    using OnBatch = std::function<void(std::shared_ptr<AgentLink>, Batch, std::string)>;
    using OnGpus = std::function<void(std::shared_ptr<AgentLink>, const GpuBatch&)>;
    AgentLink(std::shared_ptr<JobActor> actor, std::int32_t attempt,
              std::shared_ptr<AgentPeer> peer, std::string remote, OnBatch on_batch,
              OnGpus on_gpus);

    void on_text(std::string_view bytes) override;
    void on_binary(std::string_view bytes) override;
    void on_closed() override;
    bool introduced() const override { return node_rank >= 0; }

    void send(const wire::DaemonMessage& message);
    // The same, encoded already.
    void send_text(std::string message);
    // Of one that many agents get; never nullptr.
    void send_encoded(std::shared_ptr<const std::string> message);
    void close(std::string reason);
    void acknowledge_event(std::uint64_t event);
    // The same in two steps: of several that were heard the newest says it for all.
    void heard(std::uint64_t event);
    void acknowledge();
    void acknowledge_batch(std::uint64_t seq);

    const std::shared_ptr<JobActor>& actor() const { return actor_; }
    std::int32_t attempt() const { return attempt_; }
    // The address it comes from.
    const std::string& remote() const { return remote_; }
    bool open() const { return open_; }

    // The allocation's node, set by the actor once HELLO has been accepted; -1 before. Which node
    // of a generation it is, the generation says.
    std::int32_t node_rank = -1;
    std::string node;
    std::string incarnation;
    std::int64_t pid = 0;
    std::int32_t generation = 0;  // of a lost node: what it said that it had ranks of, or had had
    wire::Join join;
    bool done = false;  // every rank of the node has ended
    bool stop_sent = false;
    // ABORT of the live generation, over this connection.
    std::optional<std::chrono::steady_clock::time_point> abort_sent;
    bool hello_pending = false;  // HELLO is being made durable
    bool accepted = false;       // HELLO is durable: this is the node's agent
    // Among the connections of its ticket that are not accepted; nullptr: not one of them (any
    // more).
    std::shared_ptr<void> place;
    std::uint64_t dropped_rows = 0;
    // The node's clock minus the daemon's, as the agent measures it all the time (BEAT, CLOCK):
    // what is to be subtracted from a time of that node before it is compared with another's.
    struct ClockOffset {
        std::int64_t offset_us = 0;
        std::int64_t error_us = 0;  // at most so far wrong
    };
    std::optional<ClockOffset> clock_offset;  // nothing: not measured yet
    std::chrono::steady_clock::time_point last_heard;
    std::chrono::steady_clock::time_point since;  // it is the node's agent

  private:
    void refuse(std::string_view what, std::string_view why);
    void on_beat(const wire::Beat& beat);
    void on_gpus(std::string_view bytes);

    std::shared_ptr<JobActor> actor_;
    std::int32_t attempt_;
    std::shared_ptr<AgentPeer> peer_;
    std::string remote_;
    OnBatch on_batch_;
    OnGpus on_gpus_;
    std::uint64_t acked_event_ = 0;
    bool ack_due_ = false;  // since heard()
    std::uint64_t acked_batch_ = 0;
    bool open_ = true;
};

}  // namespace lockstep
