// What the ranks of this node say: their sockets and what comes over them (reports, checkpoints,
// exceptions, key requests), and what was read of their output. Rows go to the outbox in batches,
// the rest as it comes. With launch node all ranks share the launcher's socket, and NodeChildren
// knows who speaks.
// Agent thread only; one object serves all generations; what it refers to outlives it.
#pragma once

#include "job/agent/kv/kv_proxy.hpp"
#include "job/agent/node/node_children.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/node/outbox.hpp"
#include "job/agent/ranks/flush_pace.hpp"
#include "job/agent/ranks/rank_message.hpp"
#include "job/agent/ranks/report_socket.hpp"
#include "job/agent/ranks/standbys.hpp"
#include "job/agent/ranks/step_timer.hpp"
#include "job/agent/ranks/telemetry_buffer.hpp"
#include "job/async/asio.hpp"
#include "job/async/task_group.hpp"
#include "job/base/result.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class RankReports {
  public:
    struct Handlers {
        std::function<bool()> connected;  // to the daemon
        std::function<void()> wake;       // there is something to send
        // Something the job's user should know; -1: of no single rank.
        std::function<void(std::int32_t rank, std::string message)> warn;
    };
    struct Parts {
        Outbox& outbox;
        NodeChildren& children;
        Standbys& standbys;
    };
    RankReports(TaskGroup& tasks, const NodeConfig& config, Parts parts, Handlers handlers);

    // The daemon has all batches up to this one; after a WELCOME.
    void begin_after(std::uint64_t acked_batch) { telemetry_.begin_after(acked_batch); }
    // Key requests without an answer are sent again; `lost`: the daemon has restarted.
    void ask_keys_again(bool lost);
    void answered(const wire::KeyReply& reply);

    // Of the generation before all is sent or forgotten.
    void start_generation(std::int32_t generation);
    // Nobody speaks yet. `one_world`: all ranks are in one process group; `launcher`: the first
    // one's socket is everybody's.
    void expect(const wire::World& world, bool one_world, bool launcher);
    Status listen(std::int32_t local_rank, const std::string& path);
    // Reads what the ranks have sent so far by the socket that all of them share.
    void catch_up();
    void close();

    // What was read of a rank's output; not counted if it reports its loss itself, which may reach
    // us a moment later than what it has printed of the same step.
    void captured(std::int32_t rank, const std::vector<RankReport>& reports);
    // What was seen of a rank of any node, which has not said it.
    void seen(std::int32_t rank, const RankReport& row) { keep_row(rank, row); }
    // Its process has ended: the last chance to read what it has said.
    void ending(std::int32_t rank);
    // The exceptions that it has told of; they are told once.
    std::vector<ExceptionNote> take_notes(std::int32_t rank);
    // The highest step that it has reported in this generation; -1: none.
    std::int64_t last_step(std::int32_t rank) const;
    // Those of the launcher itself, and of processes that nobody knows.
    const std::vector<ExceptionNote>& launcher_notes() const { return here_.launcher_notes; }

    // Lets go of printed losses that waited for a report of the same. Now and then; rows themselves
    // go by their own pace (flush_pace.hpp).
    void look();
    // Rows go now.
    void flush();
    // The node is over: nothing waits any more.
    void stop() {
        stopped_ = true;
        flush_timer_.expires_at(
            net::steady_timer::time_point::min());  // also who waits a moment later
        close();
    }
    // Reports and values that were refused, ever.
    std::uint64_t refused() const { return bad_ + telemetry_.refused_values(); }

  private:
    struct Rank {
        std::int32_t rank = 0;
        std::unique_ptr<ReportSocket> socket;
        bool reports_loss = false;   // over the socket: what it prints is not counted as well
        std::uint64_t bad = 0;       // messages that were refused
        std::uint64_t bad_told = 0;  // of those, in a row's bad_reports already
        std::vector<ExceptionNote> notes{};  // the newest limits::kExceptionNotes
        std::int64_t step = -1;              // the highest that it has reported
        std::vector<RankReport> printed{};   // its first losses, until it is known to report none
        std::chrono::steady_clock::time_point printed_since{};
        StepTimer timer{};
    };
    struct Generation {
        std::int32_t number = 0;
        std::int32_t first_rank = 0;
        std::int32_t world_size = 0;
        bool one_world = true;
        bool launcher = false;
        std::vector<Rank> ranks;  // by local rank
        std::vector<ExceptionNote> launcher_notes;
    };

    void on_message(Rank& rank, std::uint64_t connection, std::string_view bytes);
    void on_bad_message(Rank& rank, const std::string& reason);
    void on_large_message(Rank& rank, std::uint64_t connection, std::size_t size,
                          std::string_view head);
    void on_unnamed(std::uint64_t connection);
    void accept(Rank& rank, std::uint64_t connection, const RankHello& hello);
    void accept(Rank& rank, RankReport report);
    void accept(Rank& rank, const RankCheckpoint& checkpoint);
    void accept(Rank& rank, const RankPhase& phase);
    void accept(Rank& rank, ExceptionNote note);
    void accept(Rank& rank, std::uint64_t connection, const RankKeyRequest& request);
    void accept_unknown(ExceptionNote note);
    void answer(const KvProxy::Origin& origin, const wire::KeyReply& reply);
    void check_world(std::int32_t rank, std::int32_t world_size);
    void add_row(std::int32_t rank, const RankReport& report);
    void keep_row(std::int32_t rank, const RankReport& report);
    Task<void> flush_later();
    void let_go_of_printed(Rank& rank);
    Rank* find(std::int32_t rank);
    Rank* speaker_of(Rank& rank, std::uint64_t connection);
    Rank& socket_holder(Rank& rank) { return here_.launcher ? here_.ranks.front() : rank; }

    TaskGroup& tasks_;
    const NodeConfig& config_;
    Parts parts_;
    Handlers handlers_;
    KvProxy keys_;
    TelemetryBuffer telemetry_;
    FlushPace pace_;
    net::steady_timer flush_timer_;
    bool flush_waits_ = false;  // on the timer
    bool stopped_ = false;
    std::uint64_t bad_ = 0;
    // By local rank, also of later generations: it printed losses for a while and reported none, so
    // that what it prints need not wait.
    std::vector<bool> only_prints_;
    Generation here_;
};

}  // namespace lockstep
