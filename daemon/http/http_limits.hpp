// What the HTTP server lets administrators and users run into and no other program shares, each
// with its reason. What requests and answers may hold is in job/base/limits.hpp.
#pragma once

#include <chrono>
#include <cstddef>

namespace lockstep::limits {

// --tls-certificate and --tls-key: a chain of four certificates has 8 KiB.
inline constexpr std::size_t kPemFileBytes = 1U << 20U;
// Of a line that a search of logs has found; the log has all of it.
inline constexpr std::size_t kLogFindingBytes = 500;
// Of --listen's connections (limits::kConnections), those that have shown one user's credential: a
// quarter. Then the user's own that has rested longest gives way.
inline constexpr std::size_t kConnectionsOfUser = 1024;
// Of the Unix socket, beside those of --listen, which nobody else may fill: programs of lockstepd's
// own user, the local scheduler's agents until they have called in among them.
inline constexpr std::size_t kUnixConnections = 1024;
// The log of a rank that prints nothing is followed in silence: after so much of it the client's
// kernel is asked whether the client is still there, again and again, and unless it answers the
// connection ends after two minutes in all.
inline constexpr auto kPeerSilence = std::chrono::seconds{60};
inline constexpr auto kPeerProbeEvery = std::chrono::seconds{15};
inline constexpr int kPeerProbes = 4;

}  // namespace lockstep::limits
