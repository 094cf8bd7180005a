// Which rank the others wait for in NCCL, from one look at NCCL's counts (ras_status.hpp) after the
// other; and how many operations each rank has launched and is behind.
//
// A communicator stands still while none of its counts changes. If then some of its ranks have
// launched fewer operations than others, these others wait for the ones with the fewest. Of those,
// a rank that itself waits in another communicator is excused. If exactly one remains, and it has
// for long enough, it is named; of several nobody knows which holds up the other (what goes from
// rank to rank, ncclSend and ncclRecv and what is made of them (all-to-all, gather, scatter), is
// not counted), and then nobody is named. Nor is a rank that is in a communicator for which nothing
// is counted, or one that is being made or left: it may be waiting there. Ranks with equally many
// operations of different kinds disagree: the one that has other ones than all the rest is named.
//
// A rank may just be slow: loading data, saving a checkpoint. How long a job's ranks have waited
// and then gone on is remembered, and nobody is named before twice that.
//
// Which rank of the job a process is: of a communicator of all ranks its number there, if that is
// right for the ranks of this node; elsewhere its host and pid. So in a job of several nodes ranks
// are known once a communicator of all of them exists. Pure, with an injected clock; one thread.
#pragma once

#include "job/agent/nccl/ras_status.hpp"
#include "job/base/limits.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class DesyncWatch {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;
    using Duration = std::chrono::steady_clock::duration;
    struct Job {
        std::int32_t world_size = 1;
        std::int32_t first_rank = 0;  // of this node
        std::int32_t local_ranks = 1;
    };
    // The rank of this node to which a process of it belongs.
    using LocalRank = std::function<std::optional<std::int32_t>(std::int64_t pid)>;

    DesyncWatch(Job job, LocalRank local_rank, Duration least = limits::kDesyncLeast)
        : job_(job), local_rank_(std::move(local_rank)), least_(least) {}

    struct Row {
        std::int32_t rank = 0;
        std::int64_t launched = 0;  // since its row before, all communicators together
        std::int64_t lag = 0;       // operations behind, the most of its communicators
    };
    struct Finding {
        std::int32_t rank = 0;
        std::string message{};  // for people
        Duration waited{};      // since the first look that showed it
    };
    // A rank that has launched fewer operations than another one of its communicator.
    struct Behind {
        std::string who{};  // for people: the job's rank, else its place there and its process
        std::int64_t launched = 0;
        std::int64_t by = 0;  // at least
        bool silent = false;  // does not answer RAS
    };
    // A communicator that stands still while its ranks have not launched the same.
    struct Lag {
        std::string communicator{};
        std::int32_t size = 0;
        std::int64_t most = 0;  // launched by one of its ranks
        Duration still{};       // since the first look that showed it
        std::vector<Behind> behind{};
        bool differ = false;  // as many operations, but of this one not the same
    };
    // Of all communicators with several ranks.
    struct Account {
        std::vector<Lag> lags{};
        std::size_t level = 0;    // stand still, and all of their ranks have launched the same
        std::size_t moving = 0;   // go on
        std::size_t unclear = 0;  // not all of their ranks are known, or they are made or left
    };
    struct Seen {
        std::vector<Row> rows{};              // of ranks of which there is news
        std::optional<Finding> waited_for{};  // at every look, until they go on
        Account account{};
    };
    Seen take(const RasStatus& status, TimePoint now);

  private:
    struct Member {
        std::string process{};   // host and pid
        std::int32_t rank = -1;  // of the job; -1 = not known
        std::int32_t place = 0;  // in the communicator
        std::int64_t total = 0;
        std::map<std::string, std::int64_t> launched{};
        bool silent = false;         // does not answer: the counts are the last ones
        std::int64_t silent_at = 0;  // the most that any had launched when it was first silent
        bool dead = false;
    };
    // What a communicator was at the look before.
    struct Past {
        std::map<std::int32_t, std::map<std::string, std::int64_t>> launched{};  // by place
        TimePoint since{};    // it stands still since this look
        bool waited = false;  // and some of it behind others, at that look
        int missed = 0;       // looks since, without it
        std::map<std::int32_t, std::int64_t> silent_at{};  // by place; of those that are silent
    };
    struct Standing {
        const RasCommunicator* communicator = nullptr;
        std::vector<Member> members{};
        bool usable = true;  // all of it is known, and nobody makes or leaves it
        bool still = false;  // since the look before, at least
        TimePoint since{};
        std::vector<const Member*> behind{};
        std::vector<const Member*> waiting{};
        bool differ = false;  // as many operations, but not the same
    };
    struct Named {
        Finding finding{};
        TimePoint since{};
        std::string key{};          // of the communicator
        std::int64_t launched = 0;  // by all of its ranks
        // By each process in the other communicators.
        std::map<std::string, std::int64_t> elsewhere{};
    };
    struct Told {
        std::int64_t launched = 0;  // not told yet
        std::int64_t lag = 0;
        std::optional<TimePoint> at{};
    };

    void learn(const RasStatus& status);
    bool is_of_all(const RasCommunicator& communicator) const;
    std::int32_t rank_of(const RasCommunicator& communicator, bool of_all, std::int32_t place,
                         const std::string& process, std::int64_t pid) const;
    Standing standing(const RasCommunicator& communicator, TimePoint now);
    static void compare(Standing& one);
    void add_rows(const std::vector<Standing>& all, TimePoint now, Seen& out);
    static Account account_of(const std::vector<Standing>& all, TimePoint now);
    static Lag lag_of(const Standing& one, TimePoint now);
    static std::int64_t behind_by(const Member& who, std::int64_t front);
    void name(const std::vector<Standing>& all, TimePoint now);
    bool has_gone_on(const std::vector<Standing>& all) const;
    static std::int64_t front_of(const std::vector<Member>& members);
    static bool is_out_of_touch(const std::vector<Member>& members);
    static std::int64_t launched_by_all(const std::vector<Member>& members);
    static std::map<std::string, std::int64_t> launched_by_process(const std::vector<Standing>& all,
                                                                   const std::string& without);
    static std::string words(const Standing& where, const Member& who);
    static bool may_wait_unseen(const std::vector<Standing>& all, const std::string& process);

    Job job_;
    LocalRank local_rank_;
    Duration least_;
    Duration slow_{0};                  // the longest that ranks have waited and gone on
    std::map<std::string, Past> past_;  // by key
    std::map<std::string, std::int32_t> processes_;  // → rank
    std::map<std::int32_t, Told> told_;              // by rank
    std::optional<Named> named_;
};

// For people, a line for each communicator in which ranks are behind; "" if there is none with
// several ranks. `age`: since NCCL said so.
std::string lag_words(const DesyncWatch::Account& account, DesyncWatch::Duration age);

}  // namespace lockstep
