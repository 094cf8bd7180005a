// Rendezvous keys of one generation: set, get, wait, multi_get, add and barrier for its ranks.
// Lives in memory; after a restart of the daemon the agents replay what their ranks had done. Pure:
// time is passed in, answers are returned. Control thread only.
#pragma once

#include "job/model/wire.hpp"

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class KeyExchange {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;
    struct Answer {
        std::int32_t node_rank = 0;
        wire::KeyReply reply;
    };

    explicit KeyExchange(std::int32_t world_size) : world_size_(world_size) {}

    // Takes one request; returns every answer that is due now, to whomever. A request id that the
    // node has sent before replaces the earlier one and counts once.
    std::vector<Answer> request(std::int32_t node_rank, const wire::KeyRequest& request,
                                TimePoint now);
    // Answers timed_out to whoever has waited too long, naming what was missing.
    std::vector<Answer> expire(TimePoint now);
    std::size_t keys() const { return values_.size(); }

  private:
    struct Waiter {
        std::int32_t node_rank = 0;
        std::uint64_t id = 0;
        std::vector<std::string> keys;  // wait: what must exist
        std::string barrier;            // barrier: its name, and the round waited for
        std::int32_t rank = 0;
        std::uint64_t round = 0;
        TimePoint deadline;
    };
    Status put(const std::string& key, std::string value);
    wire::KeyReply set(const wire::KeyRequest& request);
    wire::KeyReply get(const wire::KeyRequest& request) const;
    wire::KeyReply multi_get(const wire::KeyRequest& request) const;
    wire::KeyReply add(std::int32_t node_rank, const wire::KeyRequest& request);
    void wait(std::int32_t node_rank, const wire::KeyRequest& request, TimePoint now);
    void arrive(std::int32_t node_rank, const wire::KeyRequest& request, TimePoint now);
    bool complete(const Waiter& waiter) const;
    std::uint64_t round_done(const std::string& barrier) const;
    std::string missing(const Waiter& waiter) const;
    void release(std::vector<Answer>& out);
    bool first_time(std::int32_t node_rank, const wire::KeyRequest& request);

    std::int32_t world_size_;
    std::map<std::string, std::string> values_;  // base 64
    std::size_t bytes_ = 0;
    // Barrier → rank → times.
    std::map<std::string, std::map<std::int32_t, std::uint64_t>> arrivals_;
    std::set<std::pair<std::int32_t, std::uint64_t>> counted_;  // (node, id) of adds and arrivals
    std::list<Waiter> waiters_;
};

}  // namespace lockstep
