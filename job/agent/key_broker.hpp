// The key operations of this node's ranks on their way to the daemon and back: numbers them, finds
// the rank that asked, and knows what a daemon that restarted (and lost its keys) must be told
// again. Pure (no I/O); agent thread only.
#pragma once

#include "job/model/wire.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class KeyBroker {
  public:
    struct Origin {
        std::int32_t rank = 0;
        std::uint64_t connection = 0;  // of the rank's report socket
        std::int64_t id = 0;           // the rank's number for the request
        std::string op;
    };

    // Forgets everything of the generation before.
    void start_generation(std::int32_t generation);
    // The request as the daemon is to get it.
    wire::KeyRequest ask(const Origin& origin, wire::KeyRequest request);
    // Whom the reply is for; nothing when nobody waits for it any more.
    std::optional<Origin> answered(const wire::KeyReply& reply);
    // After a reconnect, what to send: with `keys_lost` first every operation that changed keys
    // (replay = true), then always the unanswered requests under their old numbers.
    std::vector<wire::KeyRequest> after_reconnect(bool keys_lost) const;

    std::size_t waiting() const { return waiting_.size(); }

  private:
    struct Waiting {
        Origin origin;
        wire::KeyRequest request;
    };
    void remember(wire::KeyRequest request);

    std::int32_t generation_ = 0;
    std::uint64_t next_id_ = 1;
    std::map<std::uint64_t, Waiting> waiting_;  // by our number
    // What changed keys and was answered, by number: of sets the last per key, of adds since then
    // one with their sum.
    std::map<std::uint64_t, wire::KeyRequest> done_;
    std::map<std::string, std::uint64_t> newest_;  // op and key → number in done_
    // Barriers count arrivals, so each is told again: rank and name → numbers.
    std::map<std::pair<std::int32_t, std::string>, std::vector<std::uint64_t>> arrivals_;
};

}  // namespace lockstep
