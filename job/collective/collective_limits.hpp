// What ranks run into in collective operations, each with its reason.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::limits {

// An NCCL communicator that ends, or that lost ranks are taken out of: NCCL takes its time, but
// where a rank hangs it never ends.
inline constexpr auto kNcclEndPatience = std::chrono::seconds{10};
// Ranks that are waited for, in an error: of more the number.
inline constexpr std::size_t kNcclRanksNamed = 8;
// Ranks of one machine that sum in shared memory: whoever gets further wakes all that wait, so it
// is for those that have a few. More go over Gloo.
inline constexpr std::int32_t kSharedSumRanks = 16;

}  // namespace lockstep::limits
