// Which ranks GET …/ranks answers, and in which order: thousands of ranks, of which a screen shows
// some. Pure; any thread.
#pragma once

#include "daemon/telemetry/series/rank_metrics.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

// Of a rank's GPUs: their mean use, the sum of their power.
enum class RankKeyKind : std::uint8_t { rank, step, metric, report_age, gpu_use, gpu_power };

struct RankKey {
    std::string_view name;  // as in the answer
    RankKeyKind kind = RankKeyKind::rank;
    telemetry::CoreMetric metric{};  // of RankKeyKind::metric: any that is answered
};

inline constexpr auto kRankKeys = [] {
    constexpr auto kAnswered = [](const telemetry::RankMetric& row) {
        return row.answered != telemetry::Answered::no;
    };
    std::array<RankKey, 5 + telemetry::count_rank_metrics(kAnswered)> out{
        RankKey{"rank", RankKeyKind::rank}, RankKey{"step", RankKeyKind::step}};
    std::size_t next = 2;
    for (const telemetry::RankMetric& row : telemetry::kRankMetrics) {
        if (kAnswered(row)) {
            out[next++] = {row.name, RankKeyKind::metric, row.metric};
        }
    }
    out[next++] = {"report_age_seconds", RankKeyKind::report_age};
    out[next++] = {"utilization_ratio", RankKeyKind::gpu_use};
    out[next++] = {"power_watts", RankKeyKind::gpu_power};
    return out;
}();

struct RanksQuery {
    RankKey key = kRankKeys.front();
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
