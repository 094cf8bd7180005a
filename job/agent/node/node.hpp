// One node of an attempt: the driver of its NodeMachine. It gives the machine what the daemon says
// and what it sees of ports, setup, ranks and time, and does what the machine wants: holds ports,
// starts and stops ranks, and puts what the daemon must know into the outbox. Knows nothing of the
// connection (agent_session.hpp). Agent thread only; must outlive the TaskGroup's coroutines.
//
// It has a part for each concern: Assignment (the job), JobEnvironment (setup, secrets), HeldPorts,
// NodeRanks (how ranks start, report, save and end), RankLooks (evidence, profiles), NcclReports
// and GpuReports (what is seen beside them), DaemonClock, Preflight, NodeLeaving.
#pragma once

#include "job/agent/machine/node_machine.hpp"
#include "job/agent/node/assignment.hpp"
#include "job/agent/node/daemon_clock.hpp"
#include "job/agent/node/gpu_reports.hpp"
#include "job/agent/node/held_ports.hpp"
#include "job/agent/node/job_environment.hpp"
#include "job/agent/node/nccl_reports.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/node_leaving.hpp"
#include "job/agent/node/node_ranks.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/agent/node/rank_looks.hpp"
#include "job/agent/preflight/preflight.hpp"
#include "job/agent/ranks/socket_directory.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

namespace lockstep {

class Node {
  public:
    Node(TaskGroup& tasks, NodeConfig config, SocketDirectory sockets);

    // `wake`: there is something to send. `finished`: exit with this code; called once.
    void on_wake(std::function<void()> wake) { wake_ = std::move(wake); }
    void on_finished(std::function<void(int)> finished) { finished_ = std::move(finished); }
    // Starts the timer of beats and flushes.
    void start();

    // The session's side.
    wire::Hello hello();
    void welcome(const wire::Welcome& welcome, const std::string& local_address);
    void handle(const wire::DaemonMessage& message);
    void disconnected();
    Outbox& outbox() { return outbox_; }
    bool ranks_running() const { return ranks_.running(); }
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
    // What happens to the node: the machine takes it, and what it wants is done here or by the part
    // whose concern it is.
    void take(NodeInput input);
    template <class E>
    void perform(const E& effect) {
        if constexpr (requires { leaving_.perform(effect); }) {
            leaving_.perform(effect);
        } else if constexpr (requires { looks_.perform(effect); }) {
            looks_.perform(effect);
        } else {
            ranks_.perform(effect);
        }
    }
    void perform(const node_effect::Send& send);
    void perform(const node_effect::SendLast& send);
    void perform(const node_effect::Report& report);
    void perform(const node_effect::HoldPorts&);
    void perform(const node_effect::HoldPortsAgain&);
    void perform(const node_effect::BeginGeneration& begin);
    void perform(const node_effect::BeginPreflight&);
    void perform(const node_effect::NoMorePeers&);
    void perform(const node_effect::EndSetup&);
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
    void on(const wire::KeyReply& reply) { ranks_.reports().answered(reply); }
    void on(const wire::Clock& clock) { clock_.answered(clock); }
    void on(const wire::Drain&) {}  // the session's matter
    void begin_job();

    NcclReports::Handlers nccl_handlers();
    NodeRanks::Handlers rank_handlers();
    void follow_ranks();
    void warn(std::int32_t rank, std::string message);
    void fault(std::int32_t rank, CauseClass cause, std::string message);

    Task<void> tick();
    void beat();

    TaskGroup& tasks_;
    NodeConfig config_;
    SocketDirectory sockets_;
    NodeMachine machine_;
    std::deque<NodeInput> inputs_;  // the one that is taken, and those that came meanwhile
    Outbox outbox_;
    std::function<void()> wake_ = [] {};
    std::function<void(int)> finished_ = [](int) {};

    Assignment job_;
    JobEnvironment environment_;
    HeldPorts ports_;
    DaemonClock clock_;
    NcclReports nccl_;
    NodeRanks ranks_;

    RankLooks looks_;
    Preflight preflight_;
    net::steady_timer tick_timer_;
    NodeLeaving leaving_;
    GpuReports gpus_;  // the last: what its threads post calls in here
};

}  // namespace lockstep
