// One agent's connection as control sees it: decodes its messages and hands them to its job. Lives
// as long as the connection. Control thread only.
#pragma once

#include "daemon/control/base/agent_gate.hpp"
#include "daemon/control/machine/agent.hpp"
#include "job/model/wire/batch.hpp"
#include "job/model/wire/gpu_batch.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

class JobActor;

class AgentLink final : public AgentSession,
                        public Agent,
                        public std::enable_shared_from_this<AgentLink> {
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

  private:
    void refuse(std::string_view what, std::string_view why);
    void on_beat(const wire::Beat& beat);
    void on_gpus(std::string_view bytes);

    std::shared_ptr<JobActor> actor_;
    std::shared_ptr<AgentPeer> peer_;
    OnBatch on_batch_;
    OnGpus on_gpus_;
    std::uint64_t acked_event_ = 0;
    bool ack_due_ = false;  // since heard()
    std::uint64_t acked_batch_ = 0;
};

}  // namespace lockstep
