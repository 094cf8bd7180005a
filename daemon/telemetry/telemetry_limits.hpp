// What users and receivers run into with telemetry and no other program shares, each with its
// reason. What ranks may report, and what is kept, is in job/base/limits.hpp.
#pragma once

#include <chrono>
#include <cstddef>

namespace lockstep::limits {

// Ranks that one look tells of in anomalies, of those that are slow, and of those that are silent:
// most of the others have the same fault, and the next look tells of those that stay.
inline constexpr std::size_t kAnomalyRanksTold = 8;
// A job that waits for its data much, for so long, is told of (data_starved).
inline constexpr double kStarvedSeconds = 600;
// --remote-write: what a receiver may ask for with Retry-After; meanwhile samples wait here.
inline constexpr auto kRemoteRetryAfter = std::chrono::seconds{300};
inline constexpr std::size_t kRemoteSecretBytes = 16U << 10U;  // its token's or password's file
// Collections that wait to be packed, of all series each: of a third the samples are lost, counted.
inline constexpr std::size_t kRemoteCollectionsWaiting = 2;

}  // namespace lockstep::limits
