// NCCL's side of a node: how far the ranks are by NCCL's RAS (ras_watch.hpp), and the bandwidths of
// its Inspector (inspector_watch.hpp), whose plugin is looked for once. Ranks that differ in their
// collectives are reported to the daemon; rows and warnings go to the handlers, none of which is
// called while this is destroyed. Agent thread only; one object serves all generations, what it
// refers to outlives it, and it must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/machine/node_machine.hpp"
#include "job/agent/nccl/inspector_watch.hpp"
#include "job/agent/nccl/ras_watch.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/agent/ranks/rank_message.hpp"
#include "job/async/task_group.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

class NcclReports {
  public:
    struct Handlers {
        // What was seen of a rank of any node.
        std::function<void(std::int32_t rank, const RankReport& row)> seen;
        std::function<void()> wake;  // there is something to send
        // Something the job's user should know.
        std::function<void(std::string message)> warn;
    };
    NcclReports(TaskGroup& tasks, const NodeConfig& config, const NodeMachine& machine,
                Outbox& outbox, Handlers handlers);

    // A generation is prepared, whose ranks are told of the Inspector. Reads the plugin's file the
    // first time; blocks.
    void expect(const JobSpec& spec, const wire::World& world);
    // The ranks of this node that run now; as often as one likes.
    void follow(const JobSpec& spec, const wire::World& world);
    void stop();

    // What is known of a rank of this node in NCCL, for people: on the node of rank 0 how far
    // behind ranks of the job are, then its own newest bandwidths. "" if nothing is.
    std::string words_of(std::int32_t rank) const;
    InspectorWatch& inspector() { return inspector_; }

  private:
    RasWatch::Handlers ras_handlers();

    const NodeConfig& config_;
    const NodeMachine& machine_;
    Outbox& outbox_;
    Handlers handlers_;
    RasWatch ras_;
    InspectorWatch inspector_;
    std::optional<std::string> plugin_;  // looked for once; "" = there is none
};

}  // namespace lockstep
