// Which nodes the scheduler has given to each attempt of a job, so that a node is blamed on its
// word and not on that of whoever has the job's ticket: what an agent calls its node is only what
// it says. Agents call in before the scheduler has told of the allocation, so what is not known yet
// waits: notes are kept until it is, for as long as this daemon lives. Values; control thread.
#pragma once

#include "daemon/store/node_history.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class NodeWitness {
  public:
    enum class Word : std::uint8_t {
        given,    // the node is the attempt's
        foreign,  // it is not: the scheduler has named as many others as the attempt has nodes
        unknown,  // it has not named them all yet
    };
    struct Sorted {
        NodeNotes now;            // of given nodes
        NodeNotes later;          // of nodes that nothing is known of: for keep()
        std::size_t foreign = 0;  // left out
    };

    // The scheduler names nodes of the attempt's allocation `id` ("" = it has no number), which has
    // `count` of them in all. Several answers of one allocation add up: of one that ends, and of
    // one that lost a node and goes on, schedulers name the nodes that it still has.
    void learn(std::int32_t attempt, const std::string& id, const std::vector<std::string>& nodes,
               std::size_t count);
    Word word(std::int32_t attempt, const std::string& node) const;
    // Whether word() of any name is more than unknown.
    bool complete(std::int32_t attempt) const;

    // These and those that were kept. What the scheduler ended is no fault that waits either.
    Sorted sort(NodeNotes notes) const;
    // What sort() had left over; once the others are stored. At most limits::kNodeFaults of them.
    void keep(NodeNotes later);
    std::size_t waiting() const { return waiting_.faults.size() + waiting_.ended.size(); }

  private:
    struct Allocation {
        std::string id;
        std::size_t count = 0;
        std::set<std::string> nodes;
    };
    Word word_before(std::int32_t attempt, const std::string& node) const;

    std::map<std::int32_t, Allocation> allocations_;  // by attempt
    NodeNotes waiting_;
};

}  // namespace lockstep
