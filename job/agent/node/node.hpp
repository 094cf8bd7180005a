// One node of an attempt: the driver of its NodeMachine. It gives the machine what the daemon says
// and what it sees of ports, setup, ranks and time, and does what the machine wants: holds ports,
// starts and stops ranks, and puts what the daemon must know into the outbox. Knows nothing of the
// connection (agent_session.hpp). Agent thread only; must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/diagnostics/evidence_taker.hpp"
#include "job/agent/gpu/gpu_watch.hpp"
#include "job/agent/horovod/horovod_rendezvous.hpp"
#include "job/agent/kv/kv_proxy.hpp"
#include "job/agent/machine/node_machine.hpp"
#include "job/agent/node/clock_offset.hpp"
#include "job/agent/node/node_children.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/agent/preflight/held_port.hpp"
#include "job/agent/preflight/preflight.hpp"
#include "job/agent/ranks/rank_group.hpp"
#include "job/agent/ranks/report_socket.hpp"
#include "job/agent/ranks/secret_mask.hpp"
#include "job/agent/ranks/socket_directory.hpp"
#include "job/agent/ranks/standbys.hpp"
#include "job/agent/ranks/task_gate.hpp"
#include "job/agent/ranks/telemetry_buffer.hpp"
#include "job/agent/torch_store/tcp_store.hpp"
#include "job/async/subprocess.hpp"
#include "job/async/task_group.hpp"
#include "job/base/clock.hpp"
#include "job/model/launch/rank_env.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

// What a node is told when its agent starts.
struct NodeConfig {
    std::filesystem::path attempt_directory;
    std::int32_t node_rank = 0;
    std::int32_t nodes = 1;
    std::string name;         // of the node
    std::string incarnation;  // random per process
    // SHA-256 of what the job's user has signed and which job of it this is: the specification is
    // that one, whatever the daemon says (signed_statement.hpp). "" = the daemon's word counts.
    std::string signed_document{};
    std::int64_t signed_point = 0;
    std::string allocation;                      // see wire::Hello
    std::string agent_program;                   // this program, for ranks' shims and their use
    std::string train_program;                   // lockstep-train
    std::string ticket;                          // of the attempt
    std::filesystem::path preflight_root = "/";  // see Preflight::Options
    std::string python_path;                     // of the Python package, "" if it is not installed
    // Where the package's hooks were looked for in vain, "" if they are there.
    std::string missing_hooks;
    std::map<std::string, std::string> inherited;  // the agent's own environment
    RankGroup::Timing timing;
    std::chrono::milliseconds settle{5'000};  // for the last acknowledgements, before exit
    std::chrono::milliseconds flush{250};     // reported rows wait at most this long
    std::chrono::milliseconds gpus{1'000};    // between looks at the GPUs
};

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
    // Stop the ranks, report, exit 0: STOP and SIGTERM. `farewell`: why it goes although its job
    // may go on; the daemon is told.
    void shut_down(std::chrono::milliseconds grace, std::string farewell = {}) {
        take(node_input::ShutDown{grace, std::move(farewell)});
    }
    // No daemon for too long and no ranks: exit.
    void give_up(const std::string& why) { take(node_input::Orphaned{why}); }

  private:
    struct RankState {
        std::int32_t rank = 0;
        std::unique_ptr<ReportSocket> socket;
        bool reports_loss = false;   // over the socket: what it prints is not counted as well
        std::uint64_t bad = 0;       // messages that were refused
        std::uint64_t bad_told = 0;  // of those, in a row's bad_reports already
        std::vector<ExceptionNote> notes{};  // the newest limits::kExceptionNotes
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
    void perform(const node_effect::BeginPreflight&);
    void perform(const node_effect::NoMorePeers&);
    void perform(const node_effect::EndSetup&);
    void perform(const node_effect::EndStandbys&);
    void perform(const node_effect::StopEvidence&);
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
    void on(const wire::Probe& probe);
    void on(const wire::PairTest& test);
    void on(const wire::Ack& ack);
    void on(const wire::KeyReply& reply);
    void on(const wire::Clock& clock);
    void on(const wire::Drain&) {}  // the session's matter

    // node_checkpoint.cpp: the signal at which ranks write a checkpoint
    struct Deaf {
        std::int32_t rank = -1;  // -1 = none is
        std::string problem;
    };
    Deaf find_deaf() const;
    void send_save_signal(bool only_unwarned);
    void warn_the_rest();

    // node_setup.cpp: what the ranks' environment begins with
    void take_secrets(wire::Welcome& welcome);
    void add_secrets(std::map<std::string, std::string>& environment) const;
    std::string masked(std::string text) const;
    void mask_end(wire::Exited& exited) const;
    void begin_setup();
    Task<void> run_setup();
    void end_setup();
    std::map<std::string, std::string> environment_of(
        const std::map<std::string, std::string>& own) const;
    Status check_endpoints() const;
    Status prepare_ranks();
    void bind_ranks();
    Result<std::string> prepare_folders();
    Status listen_for(std::int32_t local_rank);
    RankPlace place_of(std::int32_t local_rank) const;
    // `inherited`: what the rank's environment is made from.
    Result<RankGroup::RankPlan> plan_of(std::int32_t local_rank, const std::string& directory,
                                        std::map<std::string, std::string> inherited) const;
    void begin_standbys(std::vector<SpawnRequest> requests,
                        const std::vector<wire::StartedRank>& started);
    // node_tasks.cpp: launch task
    Status open_gate();
    void expect_tasks();
    task_wire::Plan plan_task(const task_wire::Hello& hello) const;
    void on_task(TaskGate::Started task);
    Task<void> run_srun(std::int32_t generation);
    void on_srun_ended(std::int32_t generation, const Result<ProcessResult>& result);
    Result<ProcessCommand> srun_command(std::int32_t generation) const;
    // node_launch.cpp: launch node
    bool has_launcher() const { return spec_ && spec_->launch == Launch::node; }
    NodeChildren::Handlers child_handlers();
    void begin_children(std::int64_t launcher);
    void on_children_changed();
    RankState* speaker_of(RankState& rank, std::uint64_t connection);
    RankState& socket_holder(RankState& rank);
    void accept(RankState& rank, std::uint64_t connection, const RankHello& hello);
    void check_world(std::int32_t rank, std::int32_t world_size);
    void on_unnamed(std::uint64_t connection);
    void on_launcher_exited(const wire::Exited& exited);
    void judge_child(NodeChildren::Ended& ended);
    void accept_unknown(ExceptionNote note);
    void warn_of_missing_hooks();
    void give_warning(std::int32_t rank, std::string message);
    // node_gpus.cpp
    void watch_gpus();
    void tell_gpu_watch();
    void on_gpus(GpuBatch batch);
    void on_gpu_error(const GpuXidSeen& seen, std::int32_t rank);
    Status hold_ports();
    void hold_ras_port();
    void release_ports();
    Status open_store();
    std::unique_ptr<StoreGuard> guard_store();
    void keep_to_what_is_signed();
    void forget_result();
    void fault(std::int32_t rank, CauseClass cause, std::string message);

    void on_rank_message(RankState& rank, std::uint64_t connection, std::string_view bytes);
    void on_bad_message(RankState& rank, const std::string& reason);
    void on_large_message(RankState& rank, std::uint64_t connection, std::size_t size,
                          std::string_view head);
    void on_captured(std::int32_t rank, std::vector<RankReport> reports);
    void on_rank_ending(std::int32_t rank);
    void on_rank_exited(wire::Exited exited);
    void accept(RankState& rank, RankReport report);
    void accept(RankState& rank, const RankCheckpoint& checkpoint);
    void accept(RankState& rank, const RankPhase& phase);
    void accept(RankState& rank, ExceptionNote note);
    void judge(wire::Exited& exited, const RankGroup::LastWords& words);
    std::int64_t known_clock_offset() const;
    void accept(RankState& rank, std::uint64_t connection, const RankKeyRequest& request);
    void answer(const KvProxy::Origin& origin, const wire::KeyReply& reply);
    void add_row(std::int32_t rank, const RankReport& report);
    RankState* state_of(std::int32_t rank);
    void flush_rows();
    void wake();
    Task<void> tick();
    Task<void> leave(bool settle);

    TaskGroup& tasks_;
    NodeConfig config_;
    SocketDirectory sockets_;
    NodeMachine machine_;
    std::deque<NodeInput> inputs_;  // those that came while one was taken
    bool taking_ = false;
    Outbox outbox_;
    KvProxy keys_;
    TelemetryBuffer telemetry_;
    RankGroup group_;
    Standbys standbys_;
    NodeChildren children_;  // of launch node
    RankGroup::LastWords launcher_words_;
    std::vector<ExceptionNote> launcher_notes_;  // its own, and of processes that nobody knows
    std::function<void()> wake_ = [] {};
    std::function<void(int)> finished_ = [](int) {};

    std::string address_;  // this node's, as the daemon sees it
    std::optional<wire::Welcome> welcome_;
    std::optional<JobSpec> spec_;
    // Of the first WELCOME: all ranks that this agent starts have the same.
    std::map<std::string, std::string> secrets_;
    std::shared_ptr<const SecretMask> mask_;  // null: there is nothing to hide
    std::optional<wire::World> world_;
    std::optional<HeldPort> port_;
    std::unique_ptr<HorovodRendezvous> rendezvous_;  // likewise, Horovod's
    std::unique_ptr<TcpStore> store_;         // of this generation, on port_; null: rank 0 has it
    std::optional<HeldPort> ras_port_;        // of NCCL, on this machine only; with GPUs
    std::vector<HeldPort> rank_ports_;        // by local rank; empty if the ranks have no endpoints
    std::vector<RankGroup::RankPlan> plans_;  // made before READY, used by START
    std::vector<RankState> ranks_;            // by local rank
    // Ranks that are to get the signal of the time limit once they catch it.
    std::set<std::int32_t> unwarned_;
    std::chrono::steady_clock::time_point warned_at_;
    std::unique_ptr<TaskGate> gate_;             // launch task only
    std::vector<wire::StartedRank> tasks_here_;  // until all are
    std::string directory_;                      // of the ranks
    ProcessRunner runner_;
    EvidenceTaker evidence_;
    Preflight preflight_;
    std::map<std::string, std::string> base_;  // of the ranks' environment, before the framework
    std::string setup_problem_;                // why no rank can start; "" = none
    std::string ports_problem_;                // why there is no JOIN; "" = there is
    UnixMillis hello_at_ = 0;                  // when the newest HELLO was made
    std::chrono::steady_clock::time_point hello_made_;
    ClockOffset clock_offset_;
    std::uint64_t bad_reports_ = 0;
    net::steady_timer tick_timer_;
    net::steady_timer leave_timer_;
    std::unique_ptr<GpuWatch> gpus_;  // the last: its threads call in here
};

}  // namespace lockstep
