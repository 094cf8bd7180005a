// Rendezvous keys of one generation: set, get, wait, multi_set, multi_get, add, cas and barrier for
// its ranks. Lives in memory; after a restart of the daemon the agents replay what their ranks had
// done. Pure: time is passed in, answers are returned. Control thread only.
//
// A value set with `once` never becomes another one: a set, add or cas that would change it is a
// conflict, one that would not is accepted. cas with an empty `expected` only creates.
//
// Every change has a version, larger than that of any change before it, also of another daemon's
// (the first one comes from the wall clock). Agents replay with it, so that of two nodes' values
// for a key the later one stays, whichever node calls in first. What this does not order, because
// nothing waits for nodes that have not called in yet:
// * what a rank asks after the restart sees only what has been replayed until then: a cas may
//   compare with an older value, or create a key, and a set with `once` may come first, although
//   another node replays later what they should have met;
// * a cas whose answer was lost with the daemon, and on whose value another rank has swapped since,
//   is not swapped when it is sent again;
// * a set whose answer was lost with the daemon comes, sent again, after what others have set
// since;
// * a counter that is also set, from other nodes than those that add, may come back without
//   additions, or with ones from before the set. One that is only added to comes back exactly.
// A barrier helps: an agent replays before it sends on what its ranks ask, so once every rank is
// through one that began after the restart, all has been replayed.
#pragma once

#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class KvStore {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;
    struct Answer {
        std::int32_t node_rank = 0;
        wire::KeyReply reply;
    };

    // `now`: of the wall clock; what was set in an earlier life of the daemon is older.
    explicit KvStore(std::int32_t world_size, UnixMillis now = 0)
        : world_size_(static_cast<std::size_t>(world_size)), version_(now * kChangesPerMilli) {}

    // Takes one request; returns every answer that is due now, to whomever. A request id that the
    // node has sent before replaces the earlier one and counts once. A node's ids rise.
    std::vector<Answer> request(std::int32_t node_rank, const wire::KeyRequest& request,
                                TimePoint now);
    // Answers timed_out to whoever has waited too long, naming what was missing.
    std::vector<Answer> expire(TimePoint now);
    std::size_t keys() const { return values_.size(); }

  private:
    // More than a daemon can make, so that the next one's versions begin above.
    static constexpr std::int64_t kChangesPerMilli = 1000;

    using RequestId = std::pair<std::int32_t, std::uint64_t>;  // node rank, its request's id
    struct Value {
        std::string text;          // base 64
        std::int64_t version = 0;  // of the last set or cas; 0 if it was only added to
        bool once = false;
        RequestId by{-1, 0};  // the set or cas that gave it `version`; node -1: none has
    };
    struct Barrier {
        std::map<std::int32_t, std::uint64_t> times;  // by rank: how often it has arrived
        std::uint64_t done = 0;                       // how often every rank has
        std::size_t ahead = 0;                        // ranks that have more often than that
    };
    using WaiterId = RequestId;
    struct Waiter {
        std::vector<std::string> keys;  // wait: what must exist
        std::size_t left = 0;           // of those; the ones behind exist, or did
        std::string barrier;            // barrier: its name, and the round waited for
        std::uint64_t round = 0;
        TimePoint deadline;
    };
    using Pairs = std::vector<std::pair<std::string, std::string>>;

    Status check(const wire::KeyRequest& request) const;
    wire::KeyReply apply(std::int32_t node_rank, const wire::KeyRequest& request);
    // All of them or none; `once` as in the request.
    Status check_room(const Pairs& pairs, bool once) const;
    void store(const std::string& key, std::string text, bool once, std::int64_t version,
               const RequestId& by);
    void note_replaced(const std::string& key, const Value& value);
    bool outdated(const std::string& key, const wire::KeyRequest& request) const;
    std::optional<std::int64_t> version_of(const std::string& key, const RequestId& by) const;

    wire::KeyReply set(std::int32_t node_rank, const wire::KeyRequest& request, Pairs pairs);
    wire::KeyReply multi_set(std::int32_t node_rank, const wire::KeyRequest& request);
    wire::KeyReply get(const wire::KeyRequest& request) const;
    wire::KeyReply multi_get(const wire::KeyRequest& request) const;
    wire::KeyReply add(std::int32_t node_rank, const wire::KeyRequest& request);
    wire::KeyReply cas(std::int32_t node_rank, const wire::KeyRequest& request);
    wire::KeyReply remove(std::int32_t node_rank, const wire::KeyRequest& request);
    void wait(WaiterId id, Waiter waiter, std::vector<Answer>& out);
    void arrive(WaiterId id, Waiter waiter, const wire::KeyRequest& request,
                std::vector<Answer>& out);
    bool complete(Waiter& waiter) const;
    static std::string place_of(const Waiter& waiter);
    void forget(std::map<WaiterId, Waiter>::iterator waiter);
    std::string missing(const Waiter& waiter) const;
    void release(std::vector<Answer>& out);

    std::size_t world_size_;
    std::int64_t version_;
    std::map<std::string, Value> values_;
    std::size_t bytes_ = 0;  // of all values
    // Keys that were deleted, and the version of that: a replay of something older sets none again.
    std::map<std::string, std::int64_t> deleted_;
    std::map<std::string, Barrier> barriers_;
    // (node, id) of additions, arrivals, deletions and cas that swapped: what must not happen
    // twice.
    std::set<RequestId> counted_;
    // The newest set or cas of a node whose value another node has replaced, or somebody deleted,
    // and its version: sent again because its answer was lost, it must not come back.
    std::map<std::pair<std::string, std::int32_t>, std::pair<std::uint64_t, std::int64_t>>
        replaced_;
    std::map<WaiterId, Waiter> waiters_;
    // Each waiter at one key that it misses, or at its barrier, so that whatever else comes to be
    // costs it nothing: 98,304 ranks wait for 768 NCCL ids.
    std::map<std::string, std::set<WaiterId>> places_;
    std::vector<std::string> woken_;  // places whose key or round this request has made
};

}  // namespace lockstep
