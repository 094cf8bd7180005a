// The ranks of a node: what is made for a generation, how its processes start and are asked for a
// checkpoint. It does what the machine wants done with them, and tells it what became of that. What
// is made for one generation is one object, from its WORLD until the next one's; how ranks end is
// reset with it (RankEnds::begin()).
// Agent thread only; one object serves all generations, what it refers to outlives it, and it must
// outlive the TaskGroup's coroutines.
//
// Ranks are started by the agent (RankGroup), by srun (RankTasks, node_ranks_tasks.cpp) or by a
// launcher that the agent starts (NodeChildren). RankReports hears them, RankEnds says how each has
// ended, Standbys wait to be the next ones.
#pragma once

#include "job/agent/machine/node_effect.hpp"
#include "job/agent/machine/node_input.hpp"
#include "job/agent/machine/node_machine.hpp"
#include "job/agent/node/assignment.hpp"
#include "job/agent/node/checkpoint_signal.hpp"
#include "job/agent/node/daemon_clock.hpp"
#include "job/agent/node/held_ports.hpp"
#include "job/agent/node/job_environment.hpp"
#include "job/agent/node/meeting_place.hpp"
#include "job/agent/node/nccl_reports.hpp"
#include "job/agent/node/node_children.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/agent/node/rank_ends.hpp"
#include "job/agent/node/rank_planner.hpp"
#include "job/agent/node/rank_reports.hpp"
#include "job/agent/node/rank_tasks.hpp"
#include "job/agent/ranks/rank_group.hpp"
#include "job/agent/ranks/socket_directory.hpp"
#include "job/agent/ranks/standbys.hpp"
#include "job/async/task_group.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/state.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class NodeRanks {
  public:
    struct Parts {
        const NodeConfig& config;
        const SocketDirectory& sockets;
        const NodeMachine& machine;
        Assignment& job;
        const JobEnvironment& environment;
        HeldPorts& ports;
        NcclReports& nccl;
        const DaemonClock& clock;
        Outbox& outbox;
    };
    struct Handlers {
        std::function<void(NodeInput)> take;  // the machine's
        // -1: of no single rank.
        std::function<void(std::int32_t rank, std::string message)> warn;
        std::function<void(std::int32_t rank, CauseClass cause, std::string message)> fault;
        // It is known better than before which process of a launcher is which rank; the machine
        // has taken it.
        std::function<void()> changed;
        std::function<void()> wake;  // there is something to send
    };
    NodeRanks(TaskGroup& tasks, Parts parts, Handlers handlers);

    void perform(const node_effect::PrepareRanks& prepare);
    void perform(const node_effect::DropRanks&);
    void perform(const node_effect::StartRanks&);
    void perform(const node_effect::StopRanks& stop) { group_.stop(stop.grace); }
    void perform(const node_effect::EndStandbys&) { standbys_.end(); }
    void perform(const node_effect::SendRows&) { reports_.flush(); }
    void perform(const node_effect::AskKeysAgain& ask) { reports_.ask_keys_again(ask.lost); }
    void perform(const node_effect::LookForSignal& look);
    void perform(const node_effect::SignalRanks&) { here_->signal.send(); }
    void perform(const node_effect::WarnRanks& warn);

    // What is to be looked at now and then. Cheap; as often as one likes.
    void look();
    // The agent is about to end. Ranks that survive SIGKILL may still be there, of an agent that is
    // fenced.
    void close();

    bool running() const { return group_.running(); }
    // Of the newest PrepareRanks, also of one that has failed, until the next; null: none yet.
    const wire::World* world() const { return here_ ? &here_->world : nullptr; }
    RankReports& reports() { return reports_; }

  private:
    // What was made for one generation.
    struct Generation {
        wire::World world;
        CheckpointSignal signal;
        std::string directory{};                   // of the ranks
        std::vector<RankGroup::RankPlan> plans{};  // made before READY, used by START
        MeetingPlace meeting_place{};              // on the master port
    };

    RankGroup::Handlers group_handlers();
    NodeChildren::Handlers child_handlers();
    RankReports::Handlers report_handlers();
    const JobSpec& spec() const { return parts_.job.spec(); }
    bool has_launcher() const { return spec().launch == Launch::node; }
    RankPlanner planner() const;
    Status prepare();
    Status open_meeting_place();
    void start_processes();
    void not_started(const Error& error);
    void begin_standbys(std::vector<SpawnRequest> requests,
                        const std::vector<wire::StartedRank>& started);
    void begin_children(std::int64_t launcher);
    void warn_of_missing_hooks();

    // node_ranks_tasks.cpp
    RankTasks::Handlers task_handlers();
    void expect_tasks();
    std::optional<task_wire::Plan> plan_task(const task_wire::Hello& hello) const;

    TaskGroup& tasks_;
    Parts parts_;
    Handlers handlers_;
    RankGroup group_;
    Standbys standbys_;
    NodeChildren children_;
    RankTasks rank_tasks_;
    RankReports reports_;
    RankEnds ends_;
    std::optional<Generation> here_;
};

}  // namespace lockstep
