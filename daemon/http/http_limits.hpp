// What the HTTP server lets administrators and users run into and no other program shares, each
// with its reason. What requests and answers may hold is in job/base/limits.hpp.
#pragma once

#include <cstddef>

namespace lockstep::limits {

// --tls-certificate and --tls-key: a chain of four certificates has 8 KiB.
inline constexpr std::size_t kPemFileBytes = 1U << 20U;
// Of a line that a search of logs has found; the log has all of it.
inline constexpr std::size_t kLogFindingBytes = 500;

}  // namespace lockstep::limits
