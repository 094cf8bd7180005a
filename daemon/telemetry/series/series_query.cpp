#include "daemon/telemetry/series/series_query.hpp"

#include "job/base/limits.hpp"
#include "job/base/number.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace lockstep::telemetry {
namespace {

double x_of(const RankSeries& series, std::size_t row, Axis axis) {
    return axis == Axis::step ? static_cast<double>(series.step(row)) : series.time(row);
}

// One bucket per row, in the order of arrival.
std::vector<SeriesBucket> rows_in_range(const RankSeries& series, const MetricColumn& column,
                                        const SeriesQuery& query) {
    std::vector<SeriesBucket> rows;
    for (std::size_t i = 0; i < series.rows(); ++i) {
        const double x = x_of(series, i, query.x);
        const bool known = query.x == Axis::time || series.step(i) >= 0;
        if (!is_absent(column.last_of(i)) && known && x >= query.from && x <= query.to) {
            rows.push_back({x, if_finite(column.low_of(i)), if_finite(column.high_of(i)),
                            if_finite(column.last_of(i))});
        }
    }
    return rows;
}

void merge(SeriesBucket& into, const SeriesBucket& newer) {
    into.x = newer.x;
    into.last = newer.last;
    if (newer.min) {
        into.min = into.min ? std::min(*into.min, *newer.min) : newer.min;
    }
    if (newer.max) {
        into.max = into.max ? std::max(*into.max, *newer.max) : newer.max;
    }
}

// Orders by x; what arrived first stays first among equals. Steps may run backwards: a script may
// count anew each epoch.
std::vector<SeriesBucket> ordered(std::vector<SeriesBucket> rows) {
    const auto before = [](const SeriesBucket& a, const SeriesBucket& b) { return a.x < b.x; };
    if (std::is_sorted(rows.begin(), rows.end(), before)) {
        return rows;
    }
    std::vector<std::size_t> order(rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return rows[a].x != rows[b].x ? rows[a].x < rows[b].x : a < b;
    });
    std::vector<SeriesBucket> result;
    result.reserve(rows.size());
    for (const std::size_t i : order) {
        result.push_back(rows[i]);
    }
    return result;
}

std::vector<SeriesBucket> reduce(std::vector<SeriesBucket> rows, double lowest, double width,
                                 std::size_t points) {
    if (rows.size() <= points) {
        return ordered(std::move(rows));
    }
    std::vector<std::optional<SeriesBucket>> parts(points);
    for (const auto& row : rows) {
        const double place = width > 0 ? std::floor((row.x - lowest) / width) : 0;
        auto& part = parts[std::min(static_cast<std::size_t>(std::max(place, 0.0)), points - 1)];
        if (part) {
            merge(*part, row);
        } else {
            part = row;
        }
    }
    std::vector<SeriesBucket> buckets;
    for (const auto& part : parts) {
        if (part) {
            buckets.push_back(*part);
        }
    }
    return buckets;
}

std::vector<std::int32_t> wanted_ranks(const JobSeries& job, const SeriesQuery& query) {
    std::vector<std::int32_t> ranks = query.ranks;
    if (ranks.empty()) {
        for (std::size_t i = 0; i < std::min(job.world_size(), limits::kSeriesRanks); ++i) {
            ranks.push_back(static_cast<std::int32_t>(i));
        }
    }
    std::erase_if(ranks, [&](std::int32_t r) {
        return r < 0 || static_cast<std::size_t>(r) >= job.world_size();
    });
    ranks.resize(std::min(ranks.size(), limits::kSeriesRanks));
    return ranks;
}

Json number_or_null(const std::optional<double>& value) {
    return value ? Json(*value) : Json();
}

Json x_json(Axis axis, double x) {
    return axis == Axis::step ? Json(static_cast<std::int64_t>(x)) : Json(x);
}

const char* nonfinite_word(double value) {
    return std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
}

}  // namespace

std::vector<RankHistory> query_series(const JobSeries& job, const SeriesQuery& query) {
    std::vector<RankHistory> result;
    const auto metric = job.metric(query.metric);
    if (!metric) {
        return result;
    }
    const std::size_t points = std::clamp<std::size_t>(query.points, 1, limits::kSeriesPoints);
    std::vector<std::vector<SeriesBucket>> rows;
    double lowest = std::numeric_limits<double>::infinity();
    double highest = -lowest;
    for (const std::int32_t rank : wanted_ranks(job, query)) {
        const RankSeries& series = job.rank(static_cast<std::size_t>(rank));
        const MetricColumn* column = series.column(*metric);
        if (column == nullptr) {
            continue;
        }
        rows.push_back(rows_in_range(series, *column, query));
        for (const auto& row : rows.back()) {
            lowest = std::min(lowest, row.x);
            highest = std::max(highest, row.x);
        }
        RankHistory history;
        history.rank = rank;
        history.nonfinite_total = column->nonfinite_total;
        for (const auto& value : column->nonfinite) {
            const double x = query.x == Axis::step ? static_cast<double>(value.step) : value.time;
            if (x >= query.from && x <= query.to) {
                history.nonfinite.push_back(value);
            }
        }
        result.push_back(std::move(history));
    }
    const double width = (highest - lowest) / static_cast<double>(points);
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i].buckets = reduce(std::move(rows[i]), lowest, width, points);
    }
    return result;
}

Json to_json(const SeriesQuery& query, const std::vector<RankHistory>& history) {
    Json series = Json::array();
    for (const auto& rank : history) {
        Json points = Json::array();
        for (const auto& bucket : rank.buckets) {
            points.push_back(
                Json::array({x_json(query.x, bucket.x), number_or_null(bucket.min),
                             number_or_null(bucket.max), number_or_null(bucket.last)}));
        }
        Json item{{"rank", rank.rank}, {"points", std::move(points)}};
        if (rank.nonfinite_total > 0) {
            Json list = Json::array();
            for (const auto& value : rank.nonfinite) {
                const double x =
                    query.x == Axis::step ? static_cast<double>(value.step) : value.time;
                list.push_back(Json::array({x_json(query.x, x), nonfinite_word(value.value)}));
            }
            item["nonfinite"] = std::move(list);
            item["nonfinite_total"] = rank.nonfinite_total;
        }
        series.push_back(std::move(item));
    }
    return Json{{"metric", query.metric},
                {"x", query.x == Axis::step ? "step" : "time"},
                {"series", std::move(series)}};
}

}  // namespace lockstep::telemetry
