// What must hold under every failure, checked before anything is appended and counted when it does
// not (lockstep_invariant_violations_total): a step that would break one is not taken. The fold
// refuses most of it, too; this says which promise would have been broken. Pure; any thread.
#pragma once

#include "job/base/enum_table.hpp"
#include "job/model/job.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

enum class Invariant : std::uint8_t {
    accepted_is_kept,    // what was answered 201 is among the jobs
    one_live_attempt,    // one attempt at a time, of one allocation; numbers only grow
    intent_comes_first,  // nothing is acknowledged that was not announced on disk before
    end_needs_evidence,  // exits, a fault, a cancel: never silence
    ranks_need_a_claim,  // no generation without a claim of every node, in a live attempt
};
inline constexpr std::size_t kInvariants = 5;
inline constexpr std::array<std::string_view, kInvariants> kInvariantNames{
    "accepted_is_kept", "one_live_attempt", "intent_comes_first", "end_needs_evidence",
    "ranks_need_a_claim"};
static_assert(names_all_of<Invariant>(kInvariantNames));

// The one that the event would break if the job took it.
std::optional<Invariant> broken_by(const Job& job, const EventData& event);

}  // namespace lockstep
