// Asks NCCL's RAS, while ranks run, how far each of them is (ras_status.hpp), and tells what comes
// of it (desync_watch.hpp): rows of telemetry and which rank the others wait for. One agent does it
// for the whole job, since one process of it answers for all: the one with rank 0. Its ranks are
// asked on one after the other's address, which is the node's unless the job has made it otherwise.
//
// RAS's MONITOR (2.29) is not followed: it tells of a dead process after a minute, and STATUS shows
// one that does not answer after seconds.
//
// Agent thread only; one object serves all generations, and must outlive the TaskGroup's
// coroutines. /proc is read on a thread of its own.
#pragma once

#include "job/agent/diagnostics/nccl_ras.hpp"
#include "job/agent/gpu/rank_processes.hpp"
#include "job/agent/nccl/desync_watch.hpp"
#include "job/agent/ranks/inner_pids.hpp"
#include "job/agent/ranks/rank_message.hpp"
#include "job/async/asio.hpp"
#include "job/async/side_thread.hpp"
#include "job/async/task_group.hpp"
#include "job/base/limits.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class RasWatch {
  public:
    struct Handlers {
        std::function<void(std::int32_t rank, const RankReport& row)> seen;
        // At every look while there is one, and once when there is none. False: it could not be
        // said, and is said again.
        std::function<bool(wire::Desync)> waited_for;
        // Something the job's user should know: what cannot be seen, and why.
        std::function<void(std::string message)> warn;
    };
    struct Timing {
        std::chrono::milliseconds poll = limits::kRasPoll;
        std::chrono::milliseconds least = limits::kDesyncLeast;
        std::chrono::milliseconds patience = limits::kRasPatience;
    };
    RasWatch(TaskGroup& tasks, Handlers handlers, Timing timing);

    // The ranks of this node that run now, in this world; as often as one likes. None: nothing is
    // watched. Only on the node of rank 0.
    void follow(const wire::World& world, const std::vector<wire::StartedRank>& ranks);
    void stop();
    // What NCCL said last of the ranks of the whole job, for people; "" if nothing is known.
    std::string words() const;

  private:
    // Which rank of this node a process is that RAS knows by the number it has for itself.
    struct Processes {
        RankProcesses outer;    // as the agent sees them
        InnerPids inner{};      // as they see themselves, when it was looked last
        bool unknown = false;   // RAS knew one since that is in neither
        bool doubtful = false;  // RAS knew one by a number that several ranks have
        std::optional<std::int32_t> rank_of(std::int64_t pid);
    };
    // All that the watch over one generation has under way: an earlier one that is still ending
    // must not touch it.
    struct Watching {
        Watching(net::io_context& io, DesyncWatch::Job job,
                 const std::vector<wire::StartedRank>& started, std::chrono::milliseconds least);
        std::int32_t generation = 0;
        std::vector<wire::StartedRank> ranks;
        std::shared_ptr<Processes> processes;
        DesyncWatch watch;
        std::optional<RasAddress> address;
        std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
        std::chrono::milliseconds pause{0};             // until the next look
        std::optional<DesyncWatch::Account> account{};  // of the newest answer
        std::chrono::steady_clock::time_point answered{};
        int failures = 0;  // in a row
        int looks = 0;     // since the processes were looked at
        bool over = false;
        std::optional<std::int32_t> told{};  // the rank that was said to be waited for; −1: none
        net::steady_timer timer;
        std::shared_ptr<tcp::socket> socket;  // of the question under way
    };
    using WatchingPointer = std::shared_ptr<Watching>;

    Task<void> run(WatchingPointer watching);
    Task<void> find(WatchingPointer watching);
    Task<void> ask(WatchingPointer watching);
    void failed(Watching& watching, RasSilence why);
    void take(Watching& watching, const std::string& text);
    void tell(Watching& watching, const DesyncWatch::Seen& seen);
    void warn_once(std::string message);

    TaskGroup& tasks_;
    Handlers handlers_;
    Timing timing_;
    WatchingPointer watching_;  // null: none
    std::set<std::string> warned_;
    SideThread proc_;
};

}  // namespace lockstep
