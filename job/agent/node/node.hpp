// One node of an attempt: the driver of its NodeMachine. It gives the machine what the daemon says
// and what it sees of ports, setup, ranks and time, and does what the machine wants: holds ports,
// starts and stops ranks, and puts what the daemon must know into the outbox. Knows nothing of the
// connection (agent_session.hpp). Agent thread only; must outlive the TaskGroup's coroutines.
//
// It has a part for each concern: Assignment (the job), JobEnvironment (setup, secrets), HeldPorts,
// RankPlanner (what a rank is started with), RankGroup (processes), RankTasks and NodeChildren
// (those that srun or a launcher starts), RankReports (what they say), MeetingPlace (torch's
// store), CheckpointSignal, NcclReports, GpuReports, DaemonClock.
#pragma once

#include "job/agent/diagnostics/evidence_taker.hpp"
#include "job/agent/diagnostics/profile_taker.hpp"
#include "job/agent/machine/node_machine.hpp"
#include "job/agent/node/assignment.hpp"
#include "job/agent/node/checkpoint_signal.hpp"
#include "job/agent/node/daemon_clock.hpp"
#include "job/agent/node/gpu_reports.hpp"
#include "job/agent/node/held_ports.hpp"
#include "job/agent/node/job_environment.hpp"
#include "job/agent/node/meeting_place.hpp"
#include "job/agent/node/nccl_reports.hpp"
#include "job/agent/node/node_children.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/agent/node/rank_planner.hpp"
#include "job/agent/node/rank_reports.hpp"
#include "job/agent/node/rank_tasks.hpp"
#include "job/agent/preflight/preflight.hpp"
#include "job/agent/ranks/rank_group.hpp"
#include "job/agent/ranks/socket_directory.hpp"
#include "job/agent/ranks/standbys.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class Node {
  public:
    Node(TaskGroup& tasks, NodeConfig config, SocketDirectory sockets);

    // `wake`: there is something to send. `finished`: exit with this code; called once.
    void on_wake(std::function<void()> wake) { wake_ = std::move(wake); }
    void on_finished(std::function<void(int)> finished) { finished_ = std::move(finished); }
    // Starts the flush and beat timers.
    void start();

    // The session's side.
    wire::Hello hello();
    void welcome(const wire::Welcome& welcome, const std::string& local_address);
    void handle(const wire::DaemonMessage& message);
    void disconnected();
    Outbox& outbox() { return outbox_; }
    bool ranks_running() const { return group_.running(); }
    // Kill everything and exit with kAgentFenced.
    void fence(const std::string& why) { take(node_input::Refused{why}); }
    // The scheduler says that the time limit is near: the ranks are asked for a checkpoint. One
    // that does not catch the signal yet gets it as soon as it does.
    void warn_ranks() { take(node_input::TimeLimitNear{}); }
    // Stop the ranks, report, exit: SIGTERM. `farewell`: why it goes although its job
    // may go on; the daemon is told.
    void shut_down(std::chrono::milliseconds grace, std::string farewell = {}) {
        take(node_input::ShutDown{grace, std::move(farewell)});
    }
    // No daemon for too long and no ranks: exit.
    void give_up(const std::string& why) { take(node_input::Orphaned{why}); }

  private:
    // What was made for one generation, from its WORLD until the next one's.
    struct Generation {
        wire::World world;
        CheckpointSignal signal;
        std::string directory{};                   // of the ranks
        std::vector<RankGroup::RankPlan> plans{};  // made before READY, used by START
        MeetingPlace meeting_place{};              // on the master port
        RankGroup::LastWords launcher_words{};     // of launch node: judged with its ranks
    };

    // What happens to the node: the machine takes it, and what it wants is done.
    void take(NodeInput input);
    void perform(const node_effect::Send& send);
    void perform(const node_effect::SendLast& send);
    void perform(const node_effect::Report& report);
    void perform(const node_effect::SendRows&);
    void perform(const node_effect::AskKeysAgain& ask);
    void perform(const node_effect::HoldPorts&);
    void perform(const node_effect::HoldPortsAgain&);
    void perform(const node_effect::BeginGeneration& begin);
    void perform(const node_effect::PrepareRanks& prepare);
    void perform(const node_effect::DropRanks&);
    void perform(const node_effect::StartRanks&);
    void perform(const node_effect::StopRanks& stop);
    void perform(const node_effect::SaveResult& save);
    void perform(const node_effect::SaveOutcome& save);
    void perform(const node_effect::BeginPreflight&);
    void perform(const node_effect::NoMorePeers&);
    void perform(const node_effect::EndSetup&);
    void perform(const node_effect::EndStandbys&);
    void perform(const node_effect::StopEvidence&);
    void perform(const node_effect::Profile& profile);
    void perform(const node_effect::Examine& examine);
    void perform(const node_effect::LookForSignal& look);
    void perform(const node_effect::SignalRanks&);
    void perform(const node_effect::WarnRanks& warn);
    void perform(const node_effect::LeaveLastWords& leave);
    void perform(const node_effect::Leave& leaving);
    void perform(const node_effect::LookAtLeaving&);
    void perform(const node_effect::Exit& exit);

    // The daemon's words: the machine's, if it is not said otherwise.
    template <class M>
    void on(const M& order) {
        take(order);
    }
    void on(const wire::Welcome&) {}
    void on(const wire::Probe& probe) { preflight_.probe(probe); }
    void on(const wire::PairTest& test) { preflight_.pair_test(test); }
    void on(const wire::Ack& ack);
    void on(const wire::KeyReply& reply) { reports_.answered(reply); }
    void on(const wire::Clock& clock) { clock_.answered(clock); }
    void on(const wire::Drain&) {}  // the session's matter
    void begin_job();

    // node_tasks.cpp
    RankTasks::Handlers task_handlers();
    void expect_tasks();
    std::optional<task_wire::Plan> plan_task(const task_wire::Hello& hello) const;

    // node_ranks.cpp
    RankGroup::Handlers group_handlers();
    NodeChildren::Handlers child_handlers();
    RankReports::Handlers report_handlers();
    NcclReports::Handlers nccl_handlers();
    RankPlanner planner() const;
    Status prepare_ranks();
    Status open_meeting_place();
    void start_processes();
    void begin_standbys(std::vector<SpawnRequest> requests,
                        const std::vector<wire::StartedRank>& started);
    void begin_children(std::int64_t launcher);
    bool has_launcher() const { return job_.known() && job_.spec().launch == Launch::node; }
    void on_rank_ending(std::int32_t rank);
    void on_rank_exited(wire::Exited exited);
    void judge(wire::Exited& exited, const RankGroup::LastWords& words);
    void judge_child(NodeChildren::Ended& ended);
    void follow_ranks();
    void warn_of_missing_hooks();
    void warn(std::int32_t rank, std::string message);
    void fault(std::int32_t rank, CauseClass cause, std::string message);

    Task<void> tick();
    void beat();
    Task<void> leave(bool settle);

    TaskGroup& tasks_;
    NodeConfig config_;
    SocketDirectory sockets_;
    NodeMachine machine_;
    std::deque<NodeInput> inputs_;  // those that came while one was taken
    bool taking_ = false;
    Outbox outbox_;
    std::function<void()> wake_ = [] {};
    std::function<void(int)> finished_ = [](int) {};

    Assignment job_;
    JobEnvironment environment_;
    HeldPorts ports_;
    std::string ports_problem_;  // why there is no JOIN; "" = there is

    RankGroup group_;
    Standbys standbys_;
    NodeChildren children_;
    RankTasks rank_tasks_;
    RankReports reports_;
    std::optional<Generation> here_;

    EvidenceTaker evidence_;
    ProfileTaker profiles_;
    NcclReports nccl_;
    Preflight preflight_;
    DaemonClock clock_;
    net::steady_timer tick_timer_;
    net::steady_timer leave_timer_;
    GpuReports gpus_;  // the last: its threads call in here
};

}  // namespace lockstep
