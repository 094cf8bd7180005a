// Whose ranks an agent may speak of: those that its node ran in that generation. Pure functions;
// those of an Agent on the control thread, the others on any.
#pragma once

#include "daemon/control/machine/agent.hpp"
#include "job/model/find_attempt.hpp"
#include "job/model/job.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep {

// Into `job`, good until that changes. nullptr: the attempt has not begun, or not that generation.
inline const Generation* find_generation(const Job& job, std::int32_t attempt,
                                         std::int64_t number) {
    const Attempt* at = find_attempt(job, attempt);
    if (at == nullptr) {
        return nullptr;
    }
    const auto found = std::find_if(at->generations.rbegin(), at->generations.rend(),
                                    [&](const Generation& one) { return one.number == number; });
    return found == at->generations.rend() ? nullptr : &*found;
}

// The newest of the attempt, for what names no generation. nullptr: it has had none.
inline const Generation* newest_generation(const Job& job, std::int32_t attempt) {
    const Attempt* at = find_attempt(job, attempt);
    return at == nullptr || at->generations.empty() ? nullptr : &at->generations.back();
}

// `slot`: the allocation's node. `rank`: as the agent says it, also a negative one. False without
// a generation.
inline bool runs_rank(const Generation* generation, std::int32_t ranks_per_node, std::int32_t slot,
                      std::int64_t rank) {
    return generation != nullptr && rank >= 0 && rank / ranks_per_node < INT32_MAX &&
           generation->slot_of(static_cast<std::int32_t>(rank / ranks_per_node)) == slot;
}

// The rank that the node of `slot` ran, where it ran one: a spare, or a node of a generation of
// fewer, has another number than its place in the allocation. -1: none, several, or not known.
inline std::int32_t only_rank_of(const Generation* generation, std::int32_t ranks_per_node,
                                 std::int32_t slot) {
    return generation != nullptr && ranks_per_node == 1 ? generation->node_rank_of(slot) : -1;
}

// What a node says stands, but not under the number of another one's rank: `rank` if it is one of
// that node's, else -1 (of no single rank).
inline std::int32_t own_rank(const Job& job, const Agent& link, std::int32_t generation,
                             std::int32_t rank) {
    const bool own = runs_rank(find_generation(job, link.attempt(), generation),
                               job.spec.ranks_per_node(), link.node_rank, rank);
    return own ? rank : -1;
}

// Of what a node says of each of its ranks, that of others goes. `T` has `rank`.
template <class T>
std::vector<T> of_own_ranks(const Job& job, const Agent& link, std::int32_t generation,
                            std::vector<T> said) {
    const Generation* ran = find_generation(job, link.attempt(), generation);
    std::erase_if(said, [&](const T& one) {
        return !runs_rank(ran, job.spec.ranks_per_node(), link.node_rank, one.rank);
    });
    return said;
}

}  // namespace lockstep
