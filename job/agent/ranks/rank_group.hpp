// The rank processes of one generation on this node: starting, watching, stopping, their logs.
// Policy: the first rank that fails is reported at once; its peers get a moment to write
// what they saw, then SIGTERM, a grace, SIGKILL to their process groups. Nothing here blocks, also
// not on a process that cannot be killed; a file system that hangs holds it up for
// LogWriter::kPatience, unless it does so while a log is opened.
// Agent thread only. One object serves all generations of an agent, one after the other; it must
// outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/ranks/crash_watch.hpp"
#include "job/agent/ranks/output_reader.hpp"
#include "job/agent/ranks/rank_log.hpp"
#include "job/agent/ranks/secret_mask.hpp"
#include "job/agent/ranks/spawn.hpp"
#include "job/agent/ranks/task_gate.hpp"
#include "job/async/task_group.hpp"
#include "job/base/limits.hpp"
#include "job/base/machine.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class RankGroup {
  public:
    struct RankPlan {
        std::int32_t rank = 0;
        SpawnRequest process;  // without the output
        std::filesystem::path log;
        std::shared_ptr<const SecretMask> mask{};  // of the log; null: it has all that is printed
        std::optional<Capture> capture;            // nothing: do not look at what it prints
        std::int32_t world_size = 1;               // of all ranks of the job
        bool one_world = true;                     // they are in one process group
        bool launcher = false;                     // it starts ranks: `printed` gets what it prints
    };
    // What is known of a rank at its end besides how it ended.
    struct LastWords {
        std::int64_t pid = 0;
        std::string output;         // the end of it, limits::kRankTailBytes
        UnixMillis crash_at = 0;    // CrashWatch's; 0: none
        UnixMillis stopped_at = 0;  // when it was told to end; 0: it was not
    };
    struct Handlers {
        std::function<void(std::int32_t rank, std::vector<RankReport> reports)> captured;
        // Called when the process has ended and before `exited`: the last chance to read reports.
        std::function<void(std::int32_t rank)> ending;
        // Of one that ended badly, after `ending`: says why and since when in `exited`.
        std::function<void(wire::Exited& exited, const LastWords& words)> judge;
        std::function<void(wire::Exited)> exited;
        // A rank survived SIGKILL; it is counted as ended, the node is not good any more.
        std::function<void(std::int32_t rank, std::string why)> unkillable;
        std::function<void()> all_ended;
        std::function<void(std::string_view bytes)> printed{};
        // What a rank prints says that it does not train as the job means it, or not all of it is
        // in its log.
        std::function<void(std::int32_t rank, std::string message)> warned{};
        // A process that waits to be this rank; nothing: it is started.
        std::function<std::optional<WarmProcess>(std::int32_t rank, const SpawnRequest& request)>
            warm{};
        std::function<std::int64_t()> oom_kills = [] { return lockstep::oom_kills(); };
    };
    struct Timing {
        std::chrono::milliseconds echo{200};  // a failure's peers may still write their logs
        // The same if only echoes of a failure were heard so far.
        std::chrono::milliseconds culprit =
            limits::kCulpritPatience + std::chrono::milliseconds{200};
        std::chrono::milliseconds grace = limits::kStopGrace;  // after a failure
        std::chrono::milliseconds after_kill{5'000};
    };

    RankGroup(TaskGroup& tasks, Handlers handlers, Timing timing);

    // Starts every rank, in order. On failure what was started is stopped and will be reported.
    Result<std::vector<wire::StartedRank>> start(std::int32_t generation,
                                                 std::vector<RankPlan> plans);
    // The same for ranks that srun starts: they are counted as running from now on, and each is
    // there once adopt() has it. One that never comes ends as stopped with stop().
    Status expect(std::int32_t generation, std::vector<RankPlan> plans);
    // Whether the rank was expected and its task is let in. Otherwise the task is gone when this
    // returns.
    bool adopt(TaskGate::Started task);
    // Expected, and not here yet.
    std::size_t missing() const;
    // SIGTERM now, SIGKILL after `grace`; a shorter grace than before wins.
    void stop(std::chrono::milliseconds grace);
    // The process of each rank that lives.
    std::vector<wire::StartedRank> living() const;
    bool running() const { return running_ > 0; }
    bool stopping() const { return stopping_; }
    // A process of this node that is no rank was killed: if it was for memory, no rank was.
    void other_was_killed();
    // Into the log of a rank that runs, as if it had printed it.
    void append_log(std::int32_t rank, std::string_view bytes);

  private:
    struct Rank;
    using RankPointer = std::shared_ptr<Rank>;

    void begin(std::int32_t generation);
    Result<RankPointer> make_rank(RankPlan& plan);
    Result<RankPointer> start_one(RankPlan plan);
    Task<void> watch(RankPointer rank);
    Task<void> read_output(RankPointer rank);
    Task<void> enforce(std::int32_t generation);
    Task<void> end_missing(std::int32_t generation);
    Task<void> stop_after_failure(std::int32_t generation);
    void note_failure(bool own);
    LastWords last_words(const Rank& rank) const;
    bool read_some(Rank& rank);
    void capture(Rank& rank, std::string_view bytes);
    std::optional<wire::Exited> end_of_child(Rank& rank);
    std::optional<wire::Exited> end_of_orphan(Rank& rank);
    std::optional<wire::Exited> end_of_task(Rank& rank);
    void on_exit(Rank& rank);
    void finish(Rank& rank, wire::Exited exited);
    void signal_all(int number);
    void give_up();

    TaskGroup& tasks_;
    Handlers handlers_;
    Timing timing_;
    std::int32_t generation_ = 0;
    std::shared_ptr<LogWriter> logs_ = std::make_shared<LogWriter>();
    std::vector<RankPointer> ranks_;
    std::size_t running_ = 0;
    bool stopping_ = false;
    bool failed_ = false;
    bool own_failure_ = false;  // one that is no peer's echo: nobody else is waited for
    std::int64_t oom_kills_ = -1;
    std::chrono::steady_clock::time_point kill_at_{};
    net::steady_timer stop_timer_;
    net::steady_timer echo_timer_;
};

}  // namespace lockstep
