// What clients and agents run into on a connection, whoever uses it, each with its reason.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::limits {

// A page of 1,000 jobs or the largest series answer is a few MiB; more is not a daemon of ours.
inline constexpr std::uint64_t kDaemonAnswerBytes = 256ULL << 20U;
// Of an answer, of lockstepd or of slurmrestd: lockstepd's have < 1 KiB.
inline constexpr std::uint32_t kAnswerHeaderBytes = 64U << 10U;
// Without a word from the daemon for this long (half of it brings a ping) the connection is dead.
inline constexpr auto kDaemonSilence = std::chrono::seconds{20};
// One address of a name that has more, until the next is tried: the first packet may be lost and is
// sent again after a second.
inline constexpr auto kAddressPatience = std::chrono::seconds{2};

}  // namespace lockstep::limits
