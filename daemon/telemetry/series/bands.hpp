// Many ranks as a few lines: per column of the axis what their values are like, and which ranks are
// the worst. For charts of thousands of ranks, of which one that is slow must not be lost. Pure but
// for its source; any thread.
#pragma once

#include "daemon/telemetry/series/history_scan.hpp"
#include "job/base/enum_table.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// lowest and highest: of every value in the column, of any rank. The others: over ranks, of
// each one's last value in the column; the n-th quantile is the nearest rank's,
// the median of an even number the mean of the two in the middle.
enum class BandStat : std::uint8_t { lowest, p5, p25, median, p75, p95, highest, mean };
inline constexpr std::size_t kBandStats = 8;
inline constexpr std::array<std::string_view, kBandStats> kBandStatNames{
    "min", "p5", "p25", "median", "p75", "p95", "max", "mean"};
static_assert(names_all_of<BandStat>(kBandStatNames));
std::optional<BandStat> parse_band_stat(std::string_view word);

struct BandsAsk {
    std::string metric;
    std::vector<std::uint32_t> entities;  // ascending
    Axis x = Axis::step;
    double from = -std::numeric_limits<double>::infinity();  // both ends included
    double to = std::numeric_limits<double>::infinity();
    std::size_t columns = 800;
    std::vector<BandStat> stats{};
    std::size_t worst = 0;  // so many ranks by name
    bool low_is_worse = false;
    bool every_generation = false;  // as in HistoryAsk
};

// A row per column that has values; `values` by place in BandsAsk::stats.
struct Bands {
    std::vector<double> x;                 // the highest in the column
    std::vector<std::uint32_t> count;      // ranks with a finite value
    std::vector<std::uint32_t> nonfinite;  // ranks whose last value is NaN or infinite
    std::vector<std::vector<double>> values;
};

// Those with values that are not finite come first, then by score.
struct WorstRank {
    // How far the mean of its columns is on the worse side of the median of all ranks' means, in
    // 0.6745 / max(median deviation, 1 % of the median); negative: on the better side. Nothing: it
    // has no finite value.
    std::optional<double> score;
    RankHistory history;
};

struct BandsAnswer {
    Bands bands;
    std::vector<WorstRank> worst;
};

Result<BandsAnswer> fold_bands(HistorySource& source, const BandsAsk& ask,
                               const std::vector<TailRows>& tail);

// What a chart of the metric calls worse, unless it says: low for waits in collectives (who waits
// least is who the others wait for), for rates and for counts of samples; high for all else.
bool low_is_worse(std::string_view metric);

// {"x": […], "count": […], "nonfinite": […], "min": […], …}
Json bands_json(const BandsAsk& ask, const Bands& bands);

}  // namespace lockstep::telemetry
