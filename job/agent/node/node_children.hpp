// The ranks of a node whose processes a launcher starts (launch node): which process is which rank,
// what each of them prints, and how each has ended. The launcher itself is the rank group's.
// Agent thread only; one object serves all generations, must outlive the TaskGroup's coroutines.
//
// Who is who: a process says it itself (hello(), from the hooks in its Python or from a report),
// or its environment does. Nothing is guessed: what is printed into the launcher's output by nobody
// knows whom is in no rank's series.
//
// What a rank prints: into a pipe of its own, which its Python hands over with hello(); into a file
// its launcher has opened for it (paddle, torchrun --redirects); or among the launcher's lines with
// a mark before it (torchrun --tee). The first of them that has a loss is believed.
#pragma once

#include "job/agent/ranks/log_writer.hpp"
#include "job/agent/ranks/output_reader.hpp"
#include "job/agent/ranks/rank_identity.hpp"
#include "job/agent/ranks/secret_mask.hpp"
#include "job/async/task_group.hpp"
#include "job/base/clock.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class NodeChildren {
  public:
    struct Setup {
        std::int32_t generation = 0;
        std::int32_t first_rank = 0;
        std::int32_t count = 1;  // ranks of this node, as the job says
        std::int32_t world_size = 1;
        std::int64_t launcher = 0;  // its pid
        std::string node;           // its name
        std::filesystem::path logs;
        std::shared_ptr<const SecretMask> mask{};                    // of the logs
        std::optional<std::pair<std::string, std::string>> capture;  // preset, pattern
    };
    struct Handlers {
        std::function<void(std::int32_t rank, std::vector<RankReport> reports)> captured;
        // For the log of the node, which is that of its first rank and of its launcher.
        std::function<void(std::string_view bytes)> node_log;
        // started() has changed.
        std::function<void()> changed;
        // Something the job's user should know; -1: of no single rank.
        std::function<void(std::int32_t rank, std::string message)> warn;
        // The ranks of this node have been told to end.
        std::function<bool()> stopping;
        // Reads what the ranks have sent so far: who they are comes by a socket, what they print by
        // a pipe, and neither waits for the other.
        std::function<void()> catch_up;
    };

    NodeChildren(TaskGroup& tasks, Handlers handlers);
    ~NodeChildren();

    void begin(Setup setup);
    bool active() const { return setup_.has_value(); }

    // The rank a process belongs to: it, or the process that has started it, is known or has a
    // rank in its environment. Nothing: nobody knows.
    std::optional<std::int32_t> rank_of(std::int64_t pid);
    // A process says which rank it is. `output`: the reading end of a pipe that it prints into from
    // now on; empty: none. False: it is none of this node's ranks; its output is read all the same.
    bool hello(std::int64_t speaker, const RankIdentity& identity, UniqueFd output);
    // Output of the launcher, and of whoever shares it.
    void printed(std::string_view bytes);
    // Looks for ranks that have not said hello, and reads the files that ranks print into. Cheap;
    // as often as one likes.
    void look();
    // The launcher has ended: everything its ranks left is read, who still lives is killed, and
    // nothing is waited for any more.
    void finish();
    // Without reading anything.
    void close();
    // How each rank of the node has ended, given how its launcher has. After finish().
    struct Ended {
        wire::Exited exited;
        std::int64_t pid = 0;  // of the rank's process; 0: not known
        std::string output;    // the end of its own, if it had one
    };
    std::vector<Ended> ends(const wire::Exited& launcher);
    // The processes of the ranks that are known, and the launcher for the first one if that is not.
    std::vector<wire::StartedRank> started() const;

  private:
    struct Child;
    using ChildPointer = std::shared_ptr<Child>;
    enum class LossFrom { nowhere, own_output, launcher };

    std::optional<std::int32_t> known(std::int64_t pid) const;
    std::vector<std::int64_t> ancestry(std::int64_t pid) const;
    std::int64_t owner_of(std::int64_t pid, const RankIdentity& identity) const;
    ChildPointer adopt(std::int64_t pid, std::int32_t local);
    void take_output(const ChildPointer& child, UniqueFd output);
    void open_log(Child& child);
    void find_files(Child& child);
    void read_files(Child& child);
    void end_files(Child& child);
    void check(std::int64_t pid, const RankIdentity& identity);
    bool search(std::int64_t pid, int depth);
    void hear(std::int32_t local, OutputReader& reader);
    void captured(std::int32_t local, LossFrom from, std::vector<RankReport> reports);
    void unmarked(std::vector<RankReport> reports);
    void tell_of_unknown(bool over);
    bool read_some(Child& child);
    void on_end(Child& child);
    Task<void> read_output(ChildPointer child);
    Task<void> watch(ChildPointer child);
    std::optional<OutputReader> make_reader() const;
    static double now_seconds();
    void warn_once(std::int32_t rank, std::string message);
    std::size_t known_count() const;
    Ended end_of(std::int32_t local, const wire::Exited& launcher);
    bool failed_by_itself(std::int32_t local) const;

    TaskGroup& tasks_;
    Handlers handlers_;
    std::shared_ptr<LogWriter> logs_ = std::make_shared<LogWriter>();
    std::optional<Setup> setup_;
    std::vector<ChildPointer> children_;           // by local rank; null: not known
    std::vector<ChildPointer> strangers_;          // that are none of this node's ranks
    std::map<std::int64_t, std::int32_t> asked_;   // local ranks of processes that were looked up
    std::vector<LossFrom> loss_from_;              // by local rank
    std::map<std::int32_t, OutputReader> marked_;  // by local rank
    std::optional<OutputReader> unmarked_;
    std::string partial_;  // of the launcher's last line
    std::set<std::string> warned_;
    std::uint64_t unknown_losses_ = 0;
    bool crowded_ = false;  // more processes call themselves ranks than there are
    std::chrono::steady_clock::time_point began_{};
    std::chrono::steady_clock::time_point unknown_since_{};
    std::chrono::steady_clock::time_point searched_{};
    std::int64_t oom_kills_ = -1;
};

}  // namespace lockstep
