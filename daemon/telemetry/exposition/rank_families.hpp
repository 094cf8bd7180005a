// The families of /metrics that have one sample for each rank, in their order: what ranks report
// (rank_metrics.hpp) and what is derived from it. lockstep_rank_info is not among them.
// Values only; any thread.
#pragma once

#include "daemon/telemetry/exposition/metric_text.hpp"
#include "daemon/telemetry/series/rank_metrics.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::telemetry {

enum class RankValues : std::uint8_t {
    latest,  // of a metric
    total,   // of a metric
    step,
    straggler_score,
    report_age,
    nonfinite,
};

struct RankFamily {
    std::string_view name;  // without _total
    MetricType type{};
    std::string_view help;
    Shown shown{};
    RankValues values{};
    CoreMetric metric{};  // of latest and total
};

inline constexpr auto kRankFamilies = [] {
    constexpr std::array kBefore{RankFamily{"lockstep_rank_step", MetricType::gauge,
                                            "Last step reported.", Shown::of_many,
                                            RankValues::step}};
    constexpr std::array kBetween{
        RankFamily{"lockstep_rank_straggler_score", MetricType::gauge,
                   "Median busy time over that of the rank, 0 to 1; 1 is not slow.", Shown::of_many,
                   RankValues::straggler_score},
        RankFamily{"lockstep_rank_report_age_seconds", MetricType::gauge,
                   "Since the last report arrived.", Shown::of_many, RankValues::report_age}};
    constexpr std::array kBehind{RankFamily{"lockstep_rank_nonfinite", MetricType::counter,
                                            "Reported values that were NaN or infinite.",
                                            Shown::of_few, RankValues::nonfinite}};
    constexpr std::size_t kReported =
        count_rank_metrics([](const RankMetric& row) { return row.shown != Shown::nowhere; });
    std::array<RankFamily, kBefore.size() + kBetween.size() + kBehind.size() + kReported> out{};
    auto next = std::copy(kBefore.begin(), kBefore.end(), out.begin());
    const auto add_reported = [&next](Shown shown) {
        for (const RankMetric& row : kRankMetrics) {
            if (row.shown == shown) {
                const bool sum = row.aggregate == Aggregate::total;
                *next++ = {row.family, sum ? MetricType::counter : MetricType::gauge, row.help,
                           shown,      sum ? RankValues::total : RankValues::latest,  row.metric};
            }
        }
    };
    add_reported(Shown::of_many);
    next = std::copy(kBetween.begin(), kBetween.end(), next);
    add_reported(Shown::of_few);
    std::copy(kBehind.begin(), kBehind.end(), next);
    return out;
}();

// How many series a rank has of them.
constexpr std::size_t rank_families(Shown shown) {
    return static_cast<std::size_t>(
        std::count_if(kRankFamilies.begin(), kRankFamilies.end(),
                      [shown](const RankFamily& family) { return family.shown == shown; }));
}

}  // namespace lockstep::telemetry
