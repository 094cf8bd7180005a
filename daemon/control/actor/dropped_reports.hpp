// What is new of what agents say that they have lost. Each counts from the start of its process,
// and says all of it in every BEAT, over whatever connection. Value; control thread only.
#pragma once

#include "daemon/control/machine/agent.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

class DroppedReports {
  public:
    // `total`: since the agent's process began; its HELLO has been accepted. How many of them were
    // not told yet.
    std::uint64_t take(const Agent& agent, std::uint64_t total) {
        Known& known = by_slot_[agent.node_rank];
        if (agent.attempt() < known.attempt) {
            return 0;  // the next attempt's agent of that node has spoken
        }
        if (agent.attempt() > known.attempt || agent.incarnation != known.incarnation) {
            known = {agent.attempt(), agent.incarnation, 0};
        }
        const std::uint64_t before = known.total;
        known.total = std::max(before, total);
        return known.total - before;
    }

  private:
    struct Known {
        std::int32_t attempt = 0;
        std::string incarnation{};
        std::uint64_t total = 0;
    };
    std::map<std::int32_t, Known> by_slot_;
};

}  // namespace lockstep
