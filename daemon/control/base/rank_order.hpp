// Which ranks GET …/ranks answers, and in which order: thousands of ranks, of which a screen shows
// some. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

// Named as in the answer. Of a rank's GPUs: their mean use, the sum of their power.
enum class RankKey : std::uint8_t {
    rank,
    step,
    loss,
    step_seconds,
    busy_seconds,
    comm_wait_seconds,
    data_wait_seconds,
    report_age_seconds,
    utilization_ratio,
    power_watts,
};
inline constexpr std::array<std::string_view, 10> kRankKeys{"rank",
                                                            "step",
                                                            "loss",
                                                            "step_seconds",
                                                            "busy_seconds",
                                                            "comm_wait_seconds",
                                                            "data_wait_seconds",
                                                            "report_age_seconds",
                                                            "utilization_ratio",
                                                            "power_watts"};

struct RanksQuery {
    RankKey key = RankKey::rank;
    bool descending = false;
    std::size_t offset = 0;
    std::size_t limit = std::numeric_limits<std::size_t>::max();

    // "loss", or "-loss" for the highest first; false: no such key, nothing is changed.
    bool sort_by(std::string_view text);
};

// The ranks at the places offset, offset + 1, … of all that `values` holds one of each. Equal ones
// by rank; NaN is above everything, as it is news; who has no value comes last either way.
std::vector<std::int32_t> ranks_in_order(const std::vector<std::optional<double>>& values,
                                         const RanksQuery& query);

}  // namespace lockstep
