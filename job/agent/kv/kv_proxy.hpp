// The key operations of this node's ranks on their way to the daemon and back: numbers them, finds
// the ranks that asked, answers what cannot have changed from a cache, asks once what several ranks
// ask at a time, and knows what a daemon that restarted (and lost its keys) must be told again.
// Pure (no I/O); agent thread only.
//
// A read joins one under way only if the value turns out to be write-once. Otherwise it is asked
// again: the daemon may have answered the first one before the rank that joined was told, by
// another way, that the key has changed. Waits for the same keys are one, as long as the one under
// way ends no later than those that join it: of 98,304 ranks that wait for an id one a node asks.
#pragma once

#include "job/agent/kv/kv_cache.hpp"
#include "job/base/limits.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class KvProxy {
  public:
    struct Origin {
        std::int32_t rank = 0;
        std::uint64_t connection = 0;  // of the rank's report socket
        std::int64_t id = 0;           // the rank's number for the request
        wire::KvOp op = wire::KvOp::unknown;
        std::chrono::steady_clock::time_point deadline{};  // of a wait or a barrier
    };
    // What to do about a request: send it, answer it, or neither since one like it is under way.
    struct Asked {
        std::optional<wire::KeyRequest> send{};
        std::optional<wire::KeyReply> answer{};
    };
    struct Answered {
        std::vector<Origin> origins{};            // whom the reply is for
        std::optional<wire::KeyRequest> again{};  // to be sent, for those it came too early for
    };

    explicit KvProxy(std::size_t cache_bytes = limits::kKeyCacheBytes) : cache_(cache_bytes) {}

    // Forgets everything of the generation before.
    void start_generation(std::int32_t generation);
    Asked ask(Origin origin, wire::KeyRequest request);
    // Nobody: nobody waits for it any more.
    // `now`: which of the waits that were one request have timed out.
    Answered answered(const wire::KeyReply& reply, std::chrono::steady_clock::time_point now = {});
    // After a reconnect, what to send: with `keys_lost` first every operation that changed keys
    // (replay = true), then always the unanswered requests under their old numbers, waits and
    // barriers with what is left of their time at `now`.
    std::vector<wire::KeyRequest> after_reconnect(bool keys_lost,
                                                  std::chrono::steady_clock::time_point now) const;

    std::size_t waiting() const { return waiting_.size(); }

  private:
    struct Waiting {
        std::vector<Origin> origins;  // asked before the request was sent
        std::vector<Origin> joined;   // and since
        wire::KeyRequest request;
    };
    using Read = std::pair<wire::KvOp, std::vector<std::string>>;
    using Slot = std::pair<wire::KvOp, std::string>;  // set or add, and the key
    // Number of the request, and of the value in it (multi_set).
    using Number = std::pair<std::uint64_t, std::size_t>;

    void settle_wait(Waiting& waiting, const wire::KeyReply& reply,
                     std::chrono::steady_clock::time_point now, Answered& out);
    wire::KeyRequest send(std::vector<Origin> origins, wire::KeyRequest request);
    std::optional<wire::KeyReply> known(const wire::KeyRequest& request) const;
    void learn(const wire::KeyRequest& request, const wire::KeyReply& reply);
    void remember(wire::KeyRequest request, const wire::KeyReply& reply);
    void remember_set(wire::KeyRequest request, std::size_t index);
    std::int64_t forget(const Slot& slot);

    std::int32_t generation_ = 0;
    std::uint64_t next_id_ = 1;
    KvCache cache_;
    std::map<std::uint64_t, Waiting> waiting_;  // by our number
    std::map<Read, std::uint64_t> reads_;       // get, multi_get and wait under way → numbers
    // What changed keys and was answered, in that order: of sets the last per key, of adds since
    // then one with their sum.
    std::map<Number, wire::KeyRequest> done_;
    std::map<Slot, Number> newest_;  // → number in done_
    // Barriers count arrivals, so each is told again: rank and name → numbers.
    std::map<std::pair<std::int32_t, std::string>, std::vector<std::uint64_t>> arrivals_;
};

}  // namespace lockstep
