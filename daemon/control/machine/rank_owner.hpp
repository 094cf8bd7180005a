// Whose ranks an agent may speak of: those that its node ran in that generation. Pure functions;
// any thread.
#pragma once

#include "job/model/job.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {

// Into `job`, good until that changes. nullptr: the attempt has not begun, or not that generation.
inline const Generation* find_generation(const Job& job, std::int32_t attempt,
                                         std::int64_t number) {
    const auto at = std::find_if(job.attempts.begin(), job.attempts.end(),
                                 [&](const Attempt& one) { return one.number == attempt; });
    if (at == job.attempts.end()) {
        return nullptr;
    }
    const auto found = std::find_if(at->generations.rbegin(), at->generations.rend(),
                                    [&](const Generation& one) { return one.number == number; });
    return found == at->generations.rend() ? nullptr : &*found;
}

// The newest of the attempt, for what names no generation. nullptr: it has had none.
inline const Generation* newest_generation(const Job& job, std::int32_t attempt) {
    const auto at = std::find_if(job.attempts.begin(), job.attempts.end(),
                                 [&](const Attempt& one) { return one.number == attempt; });
    return at == job.attempts.end() || at->generations.empty() ? nullptr : &at->generations.back();
}

// `slot`: the allocation's node. `rank`: as the agent says it, also a negative one. False without
// a generation.
inline bool runs_rank(const Generation* generation, std::int32_t ranks_per_node, std::int32_t slot,
                      std::int64_t rank) {
    return generation != nullptr && rank >= 0 && rank / ranks_per_node < INT32_MAX &&
           generation->slot_of(static_cast<std::int32_t>(rank / ranks_per_node)) == slot;
}

}  // namespace lockstep
