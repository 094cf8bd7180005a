// Values that a column of numbers cannot hold as they are: none at all, NaN and infinity. Pure; any
// thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep::telemetry {

// "No value here", told apart from a reported NaN by its payload.
inline constexpr std::uint64_t kAbsentBits = 0x7FF84C5300000000ULL;
inline constexpr double kAbsent = std::bit_cast<double>(kAbsentBits);
inline bool is_absent(double value) {
    return std::bit_cast<std::uint64_t>(value) == kAbsentBits;
}

struct Nonfinite {
    std::int64_t step = -1;
    double time = 0;
    double value = 0;  // NaN, +inf or -inf
};

}  // namespace lockstep::telemetry
