// Answers GET /v1/jobs/{id}/series: history reduced to at most N buckets per rank, deterministic,
// with every extreme kept. Pure functions over a JobSeries; control thread only.
#pragma once

#include "daemon/telemetry/series/series.hpp"
#include "job/base/json.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::telemetry {

enum class Axis { step, time };  // time: seconds since the Unix epoch, the rank's clock

struct SeriesQuery {
    std::string metric = "loss";
    std::vector<std::int32_t> ranks;  // empty = all; at most limits::kSeriesRanks are answered
    Axis x = Axis::step;
    double from = -std::numeric_limits<double>::infinity();  // both ends included
    double to = std::numeric_limits<double>::infinity();
    std::size_t points = 800;  // buckets per rank, 1..limits::kSeriesPoints
};

// `x` is that of the bucket's newest value, `last` this value; nothing if it is NaN or infinite.
// `min` and `max` are over the finite values; nothing if there are none.
struct SeriesBucket {
    double x = 0;
    std::optional<double> min;
    std::optional<double> max;
    std::optional<double> last;
};

struct RankHistory {
    std::int32_t rank = 0;
    std::vector<SeriesBucket> buckets;  // ascending x; empty buckets are left out
    std::vector<Nonfinite> nonfinite;   // those in the range, of the first limits::kNonfiniteKept
    std::uint64_t nonfinite_total = 0;  // ever, restarts included
};

// Ranks that never reported the metric are left out. If a rank has at most `points` rows in the
// range, each is a bucket. Otherwise the range from the smallest to the largest x of all asked
// ranks is cut into `points` equal parts, the same for every rank. A history longer than
// limits::kRecentPoints reports is merged already (RankSeries), so a bucket may reach up to
// one stride beyond its edges. Steps that were not given are invisible on the step axis.
std::vector<RankHistory> query_series(const JobSeries& job, const SeriesQuery& query);

// {metric, x, series: [{rank, points: [[x, min, max, last], …], nonfinite: [[x, "nan"], …],
// nonfinite_total}]}. JSON has no NaN: null stands for "no finite value", and the non-finite ones
// are in `nonfinite` as "nan", "inf" or "-inf", a field that is there only if there are any.
Json to_json(const SeriesQuery& query, const std::vector<RankHistory>& history);

}  // namespace lockstep::telemetry
