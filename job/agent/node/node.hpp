// One node of an attempt as a state machine: takes the daemon's messages and the ranks' events,
// starts and stops ranks, and puts what the daemon must know into the outbox. Knows nothing of the
// connection (session.hpp). Agent thread only; must outlive the TaskGroup's coroutines.
//
//   waiting ──WORLD──▶ ready ──START──▶ running ──all ranks ended──▶ waiting (DONE)
//      ▲                 │ABORT: DONE      │ABORT, STOP, a failure: ranks stopped first
//      └─────────────────┘                 └ STOP, SIGTERM: settle (≤ 5 s for the last ACK), exit
//
// ABORT is answered with JOIN once no rank of that generation lives here.
#pragma once

#include "job/agent/diagnostics/evidence_taker.hpp"
#include "job/agent/gpu/gpu_watch.hpp"
#include "job/agent/horovod/horovod_rendezvous.hpp"
#include "job/agent/kv/kv_proxy.hpp"
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

// Exit codes of `lockstep-agent run`.
inline constexpr int kAgentDone = 0;
inline constexpr int kAgentFailed = 1;
inline constexpr int kAgentClaimed = 3;  // another agent has (had) this node
inline constexpr int kAgentFenced = 4;   // the daemon does not want this agent any more
inline constexpr int kAgentLonely = 5;  // no daemon for limits::kOrphanPatience and nothing to show

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
    void fence(const std::string& why);
    // The scheduler says that the time limit is near: the ranks are asked for a checkpoint. One
    // that does not catch the signal yet gets it as soon as it does.
    void warn_ranks();
    // Stop the ranks, report, exit 0: STOP and SIGTERM. `farewell`: why it goes although its job
    // may go on; the daemon is told.
    void shut_down(std::chrono::milliseconds grace, std::string farewell = {});
    // No daemon for too long and no ranks: exit.
    void give_up(const std::string& why);

  private:
    enum class Phase { waiting, ready, running };
    struct RankState {
        std::int32_t rank = 0;
        std::unique_ptr<ReportSocket> socket;
        bool reports_loss = false;   // over the socket: what it prints is not counted as well
        std::uint64_t bad = 0;       // messages that were refused
        std::uint64_t bad_told = 0;  // of those, in a row's bad_reports already
        std::vector<ExceptionNote> notes{};  // the newest limits::kExceptionNotes
    };

    void on(const wire::Welcome&) {}
    void on(const wire::World& world);
    void on(const wire::Start& start);
    void on(const wire::Abort& abort);
    void on(const wire::Stop& stop);
    void on(const wire::Save& save);
    void on(const wire::AskSave& ask);
    void on(const wire::Examine& examine);
    void on(const wire::Probe& probe);
    void on(const wire::PairTest& test);
    void on(const wire::Ack& ack);
    void on(const wire::KeyReply& reply);
    void on(const wire::Fenced& fenced);
    void on(const wire::Table& table);
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

    void prepare(const wire::World& world);
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
    bool has_hosts(const wire::World& world);
    Status check_endpoints() const;
    Status prepare_ranks();
    void bind_ranks();
    Result<std::string> prepare_folders();
    Status listen_for(std::int32_t local_rank);
    RankPlace place_of(std::int32_t local_rank) const;
    // `inherited`: what the rank's environment is made from.
    Result<RankGroup::RankPlan> plan_of(std::int32_t local_rank, const std::string& directory,
                                        std::map<std::string, std::string> inherited) const;
    void start_ranks();
    void begin_standbys(std::vector<SpawnRequest> requests);
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
    void begin_children();
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
    void hold_ports_again();
    void release_ports();
    Status open_store();
    std::unique_ptr<StoreGuard> guard_store();
    void send_join();
    void keep_to_what_is_signed();
    void begin_preflight(const wire::Welcome& welcome);
    void forget_result();
    void send_started();
    void fault(std::int32_t rank, std::string_view cause, std::string message);
    void done();
    void save_result();

    void on_rank_message(RankState& rank, std::uint64_t connection, std::string_view bytes);
    void on_bad_message(RankState& rank, const std::string& reason);
    void on_large_message(RankState& rank, std::uint64_t connection, std::size_t size,
                          std::string_view head);
    void on_captured(std::int32_t rank, std::vector<RankReport> reports);
    void on_rank_ending(std::int32_t rank);
    void on_rank_exited(wire::Exited exited);
    void on_all_ended();
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
    Task<void> settle();
    Task<void> exit_fenced();
    void save_last_words(const std::string& reason) const;
    void finish(int code);

    TaskGroup& tasks_;
    NodeConfig config_;
    SocketDirectory sockets_;
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

    Phase phase_ = Phase::waiting;
    bool connected_ = false;
    bool stopping_ = false;
    bool settling_ = false;
    bool fenced_ = false;
    bool finished_once_ = false;
    std::string daemon_;   // of the last WELCOME
    std::string address_;  // this node's, as the daemon sees it
    std::optional<wire::Welcome> welcome_;
    std::optional<JobSpec> spec_;
    // Of the first WELCOME: all ranks that this agent starts have the same.
    std::map<std::string, std::string> secrets_;
    std::shared_ptr<const SecretMask> mask_;  // null: there is nothing to hide
    std::optional<wire::World> world_;
    bool join_wanted_ = false;               // ABORT came while ranks ran
    std::optional<wire::World> next_world_;  // waits for the old generation's ranks to end
    std::optional<wire::World> awaiting_;    // waits for TABLE, or for the job's setup
    wire::Table table_;                      // the newest that came
    std::string farewell_;                   // said in BYE; "" = nothing is
    std::optional<HeldPort> port_;
    std::unique_ptr<HorovodRendezvous> rendezvous_;  // likewise, Horovod's
    std::unique_ptr<TcpStore> store_;         // of this generation, on port_; null: rank 0 has it
    std::optional<HeldPort> ras_port_;        // of NCCL, on this machine only; with GPUs
    std::vector<HeldPort> rank_ports_;        // by local rank; empty if the ranks have no endpoints
    std::vector<RankGroup::RankPlan> plans_;  // made before READY, used by START
    std::vector<RankState> ranks_;            // by local rank
    wire::ResultFile result_;
    bool result_saved_ = false;
    // Ranks that are to get the signal of the time limit once they catch it.
    std::set<std::int32_t> unwarned_;
    std::chrono::steady_clock::time_point warned_at_;
    std::vector<wire::StartedRank> started_;
    std::unique_ptr<TaskGate> gate_;             // launch task only
    std::vector<wire::StartedRank> tasks_here_;  // until all are
    std::string directory_;                      // of the ranks
    ProcessRunner runner_;
    EvidenceTaker evidence_;
    Preflight preflight_;
    std::map<std::string, std::string> base_;  // of the ranks' environment, before the framework
    bool setup_running_ = false;               // base_ is not what it will be
    std::string setup_problem_;                // why no rank can start; "" = none
    std::string ports_problem_;                // why there is no JOIN; "" = there is
    UnixMillis hello_at_ = 0;                  // when the newest HELLO was made
    std::chrono::steady_clock::time_point hello_made_;
    ClockOffset clock_offset_;
    std::uint64_t bad_reports_ = 0;
    std::set<std::string> warned_;  // of this generation
    net::steady_timer tick_timer_;
    net::steady_timer settle_timer_;
    std::unique_ptr<GpuWatch> gpus_;  // the last: its threads call in here
};

}  // namespace lockstep
