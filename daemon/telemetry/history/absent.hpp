// How a column of numbers says that a row has none. Pure; any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::telemetry {

// "No value here", told apart from a reported NaN by its payload.
inline constexpr std::uint64_t kAbsentBits = 0x7FF84C5300000000ULL;
inline constexpr double kAbsent = std::bit_cast<double>(kAbsentBits);
inline bool is_absent(double value) {
    return std::bit_cast<std::uint64_t>(value) == kAbsentBits;
}

}  // namespace lockstep::telemetry
