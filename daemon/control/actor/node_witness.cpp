#include "daemon/control/actor/node_witness.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {

void NodeWitness::learn(std::int32_t attempt, const std::string& id,
                        const std::vector<std::string>& nodes, std::size_t count) {
    if (nodes.empty()) {
        return;
    }
    Allocation& known = allocations_[attempt];
    if (known.id != id) {  // of an earlier submission: the attempt was submitted again
        known = Allocation{id, 0, {}};
    }
    known.count = count;
    const bool strange = std::any_of(nodes.begin(), nodes.end(), [&](const std::string& node) {
        return !known.nodes.contains(node);
    });
    if (known.nodes.size() >= count && strange) {
        known.nodes.clear();  // requeued under its number, and given others
    }
    if (known.nodes.size() < count) {
        known.nodes.insert(nodes.begin(), nodes.end());
    }
}

bool NodeWitness::complete(std::int32_t attempt) const {
    const auto found = allocations_.find(attempt);
    return found != allocations_.end() && found->second.nodes.size() >= found->second.count;
}

NodeWitness::Word NodeWitness::word(std::int32_t attempt, const std::string& node) const {
    const auto found = allocations_.find(attempt);
    if (found != allocations_.end() && found->second.nodes.contains(node)) {
        return Word::given;
    }
    return complete(attempt) ? Word::foreign : Word::unknown;
}

// Of a node that an attempt goes without: of any of those before it.
NodeWitness::Word NodeWitness::word_before(std::int32_t attempt, const std::string& node) const {
    Word out = Word::foreign;
    for (std::int32_t number = 1; number < attempt; ++number) {
        const Word one = word(number, node);
        if (one == Word::given) {
            return one;
        }
        out = one == Word::unknown ? one : out;
    }
    return out;
}

NodeWitness::Sorted NodeWitness::sort(NodeNotes notes) const {
    Sorted out;
    out.now.absolved = notes.absolved;
    NodeNotes all = waiting_;
    std::move(notes.faults.begin(), notes.faults.end(), std::back_inserter(all.faults));
    std::move(notes.ended.begin(), notes.ended.end(), std::back_inserter(all.ended));
    for (NodeFault& fault : all.faults) {
        const Word word = fault.kind == kNodeExcluded ? word_before(fault.attempt, fault.node)
                                                      : this->word(fault.attempt, fault.node);
        const auto& absolved = out.now.absolved;
        if (word == Word::given) {
            out.now.faults.push_back(std::move(fault));
        } else if (word == Word::foreign) {
            ++out.foreign;
        } else if (!absolved || fault.kind != "node_lost" || fault.attempt != absolved->attempt ||
                   fault.generation != absolved->generation) {
            out.later.faults.push_back(std::move(fault));
        }
    }
    for (NodeEnded& one : all.ended) {
        const Word word = this->word(one.attempt, one.node);
        if (word == Word::given) {
            out.now.ended.push_back(std::move(one));
        } else if (word == Word::unknown) {
            out.later.ended.push_back(std::move(one));
        } else {
            ++out.foreign;
        }
    }
    return out;
}

void NodeWitness::keep(NodeNotes later) {
    waiting_ = std::move(later);
    waiting_.faults.resize(std::min(waiting_.faults.size(), limits::kNodeFaults));
    waiting_.ended.resize(
        std::min(waiting_.ended.size(), static_cast<std::size_t>(limits::kNodes)));
}

}  // namespace lockstep
