// Names that several tests of the telemetry use.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace lockstep::telemetry {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline const std::vector<std::string> kNames{"loss", "rare"};

// The obvious way: the middle of the sorted values.
inline double plain_median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace lockstep::telemetry
