// How a node leaves: what its ranks did, why the agent gives up and what the attempt has come to
// are written into the attempt's folder, and the agent goes once its setup has ended and the daemon
// has acknowledged all that it said (one that is fenced waits for its ranks instead), or when the
// machine's leave_until() is here. Agent thread only; what it refers to
// outlives it, and it must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/machine/node_effect.hpp"
#include "job/agent/machine/node_input.hpp"
#include "job/agent/machine/node_machine.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/async/asio.hpp"
#include "job/async/task_group.hpp"

#include <filesystem>
#include <functional>

namespace lockstep {

class NodeLeaving {
  public:
    // `take`: the machine's.
    NodeLeaving(TaskGroup& tasks, const NodeConfig& config, const NodeMachine& machine,
                const Outbox& outbox, std::function<void(NodeInput)> take);

    void perform(const node_effect::SaveResult& save);
    void perform(const node_effect::SaveOutcome& save);
    void perform(const node_effect::LeaveLastWords& leave);
    void perform(const node_effect::Leave& leaving);
    void perform(const node_effect::LookAtLeaving&) { look(); }

    // A result that lies there must not speak for ranks that come.
    void forget_result();
    // If it is leaving, whether it can go is looked at now.
    void look() { timer_.cancel(); }

  private:
    std::filesystem::path result_file() const;
    Task<void> leave(bool settle);

    TaskGroup& tasks_;
    const NodeConfig& config_;
    const NodeMachine& machine_;
    const Outbox& outbox_;
    std::function<void(NodeInput)> take_;
    net::steady_timer timer_;
};

}  // namespace lockstep
