// The evidence of a hang and the profiles of a node's ranks, which the daemon asks for and is sent.
// Agent thread only; one object serves all generations, what it refers to outlives it, and it must
// outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/diagnostics/evidence_taker.hpp"
#include "job/agent/diagnostics/profile_taker.hpp"
#include "job/agent/machine/node_effect.hpp"
#include "job/agent/node/nccl_reports.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/node_ranks.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/agent/ranks/socket_directory.hpp"
#include "job/async/task_group.hpp"

#include <functional>
#include <string>

namespace lockstep {

class RankLooks {
  public:
    struct Parts {
        const NodeConfig& config;
        const SocketDirectory& sockets;
        NcclReports& nccl;
        const NodeRanks& ranks;
        Outbox& outbox;
    };
    struct Handlers {
        std::function<void()> wake;  // there is something to send
        // What NCCL's diagnostics found, for the job's user.
        std::function<void(std::string found)> found;
    };
    RankLooks(TaskGroup& tasks, Parts parts, Handlers handlers);

    // Only after a PrepareRanks.
    void perform(const node_effect::Examine& examine);
    void perform(const node_effect::Profile& profile);
    void perform(const node_effect::StopEvidence&) { stop(); }
    void stop();

  private:
    Parts parts_;
    std::function<void()> wake_;
    EvidenceTaker evidence_;
    ProfileTaker profiles_;
};

}  // namespace lockstep
