#include "daemon/telemetry/series/bands.hpp"

#include "daemon/telemetry/series/order_statistics.hpp"
#include "job/base/limits.hpp"
#include "job/base/number.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr float kNoCell = std::numeric_limits<float>::lowest();
constexpr float kOddCell = std::numeric_limits<float>::infinity();  // NaN or infinite

float cell_of(double value) {
    if (!std::isfinite(value)) {
        return kOddCell;
    }
    constexpr double kFarthest = std::numeric_limits<float>::max() / 2;
    return static_cast<float>(std::clamp(value, -kFarthest, kFarthest));
}

// Each rank's last value in every column. A column lies together: its quantiles are over ranks.
class BandsSink final : public HistorySink {
  public:
    explicit BandsSink(std::size_t entities) : entities_(entities), odd_(entities, 0) {}

    void columns(const Columns& columns) override {
        columns_ = columns;
        cells_.assign(entities_ * columns.count, kNoCell);
        x_.assign(columns.count, -std::numeric_limits<double>::infinity());
        low_.assign(columns.count, std::numeric_limits<double>::infinity());
        high_.assign(columns.count, -std::numeric_limits<double>::infinity());
    }
    void entry(std::size_t which, const HistoryEntry& entry) override {
        const std::size_t column = columns_.column_of(entry.x);
        x_[column] = std::max(x_[column], entry.x);
        if (!is_absent(entry.low)) {
            low_[column] = std::min(low_[column], entry.low);
            high_[column] = std::max(high_[column], entry.high);
        }
        cells_[column * entities_ + which] = cell_of(entry.last);
    }
    void nonfinite(std::size_t which, std::uint64_t total, const std::vector<Nonfinite>&) override {
        odd_[which] += total;
    }

    Bands bands(const std::vector<BandStat>& stats) const {
        Bands out;
        out.values.resize(stats.size());
        std::vector<float> row;
        row.reserve(entities_);
        for (std::size_t column = 0; column < columns_.count; ++column) {
            row.clear();
            std::uint32_t odd = 0;
            double sum = 0;
            const float* const begin = cells_.data() + column * entities_;
            for (const float* cell = begin; cell != begin + entities_; ++cell) {
                if (std::isinf(*cell)) {
                    ++odd;
                } else if (*cell != kNoCell) {
                    row.push_back(*cell);
                    sum += static_cast<double>(*cell);
                }
            }
            if (row.empty() && odd == 0) {
                continue;
            }
            out.x.push_back(x_[column]);
            out.count.push_back(static_cast<std::uint32_t>(row.size()));
            out.nonfinite.push_back(odd);
            for (std::size_t i = 0; i < stats.size(); ++i) {
                out.values[i].push_back(value_of(stats[i], column, row, sum));
            }
        }
        return out;
    }

    // The means of the ranks' columns; absent: it has no finite value.
    std::vector<double> means() const {
        std::vector<double> sums(entities_, 0);
        std::vector<std::uint32_t> counts(entities_, 0);
        for (std::size_t column = 0; column < columns_.count; ++column) {
            const float* const begin = cells_.data() + column * entities_;
            for (std::size_t i = 0; i < entities_; ++i) {
                if (begin[i] != kNoCell && !std::isinf(begin[i])) {
                    sums[i] += static_cast<double>(begin[i]);
                    ++counts[i];
                }
            }
        }
        for (std::size_t i = 0; i < entities_; ++i) {
            sums[i] = counts[i] == 0 ? kAbsent : sums[i] / counts[i];
        }
        return sums;
    }
    std::uint64_t odd(std::size_t which) const { return odd_[which]; }

  private:
    double value_of(BandStat stat, std::size_t column, std::vector<float>& row, double sum) const {
        if (row.empty()) {
            return kAbsent;
        }
        switch (stat) {
            case BandStat::lowest:
                return low_[column];
            case BandStat::highest:
                return high_[column];
            case BandStat::mean:
                return sum / static_cast<double>(row.size());
            case BandStat::p5:
                return quantile(row, 0.05);
            case BandStat::p25:
                return quantile(row, 0.25);
            case BandStat::median:
                return median_of(row);
            case BandStat::p75:
                return quantile(row, 0.75);
            case BandStat::p95:
                return quantile(row, 0.95);
        }
        return kAbsent;
    }
    // Of a row that an earlier call may have put into another order.
    static double quantile(std::vector<float>& row, double share) {
        const double place = std::ceil(share * static_cast<double>(row.size())) - 1;
        const auto at = row.begin() + static_cast<std::ptrdiff_t>(std::max(place, 0.0));
        std::nth_element(row.begin(), at, row.end());
        return static_cast<double>(*at);
    }

    std::size_t entities_;
    Columns columns_;
    std::vector<float> cells_;  // column by column
    std::vector<double> x_, low_, high_;
    std::vector<std::uint64_t> odd_;  // values that are not finite, by entity
};

struct Scored {
    std::size_t which = 0;
    std::optional<double> score;
    std::uint64_t odd = 0;
};

// All that reported, the worst first; the lowest rank of equals.
std::vector<Scored> scored(const BandsSink& sink, std::size_t entities, bool low_is_worse) {
    const std::vector<double> means = sink.means();
    std::vector<double> known;
    std::copy_if(means.begin(), means.end(), std::back_inserter(known),
                 [](double mean) { return !is_absent(mean); });
    double median = 0;
    double deviation = 0;
    if (!known.empty()) {
        median = OrderStatistics{known}.median();
        for (double& one : known) {
            one = std::abs(one - median);
        }
        deviation = std::max(OrderStatistics{std::move(known)}.median(), std::abs(median) / 100);
    }
    constexpr double kSigma = 0.6745;  // of a median deviation
    std::vector<Scored> out;
    for (std::size_t i = 0; i < entities; ++i) {
        Scored one{i, std::nullopt, sink.odd(i)};
        if (!is_absent(means[i])) {
            const double above = low_is_worse ? median - means[i] : means[i] - median;
            one.score = deviation > 0 ? kSigma * above / deviation : 0;
        } else if (one.odd == 0) {
            continue;
        }
        out.push_back(one);
    }
    return out;
}

bool worse(const Scored& a, const Scored& b) {
    if ((a.odd > 0) != (b.odd > 0)) {
        return a.odd > 0;
    }
    constexpr double kWorst = std::numeric_limits<double>::infinity();
    const double left = a.score.value_or(kWorst);
    const double right = b.score.value_or(kWorst);
    return left != right ? left > right : a.which < b.which;
}

Json column_json(const std::vector<double>& column) {
    Json out = Json::array();
    for (const double value : column) {
        out.push_back(std::isfinite(value) ? Json(value) : Json());
    }
    return out;
}

}  // namespace

std::optional<BandStat> parse_band_stat(std::string_view word) {
    const auto at = std::find(kBandStatNames.begin(), kBandStatNames.end(), word);
    return at == kBandStatNames.end()
               ? std::nullopt
               : std::optional{static_cast<BandStat>(at - kBandStatNames.begin())};
}

Result<BandsAnswer> fold_bands(HistorySource& source, const BandsAsk& ask,
                               const std::vector<TailRows>& tail) {
    BandsAnswer out;
    if (ask.entities.empty()) {
        return out;
    }
    HistoryAsk scan;
    scan.metric = ask.metric;
    scan.entities = ask.entities;
    scan.x = ask.x;
    scan.from = ask.from;
    scan.to = ask.to;
    scan.every_generation = ask.every_generation;
    scan.columns =
        std::clamp<std::size_t>(limits::kBandCells / ask.entities.size(), 1, ask.columns);
    BandsSink sink{ask.entities.size()};
    LOCKSTEP_TRY(scan_history(source, scan, tail, sink));
    out.bands = sink.bands(ask.stats);
    if (ask.worst == 0) {
        return out;
    }
    std::vector<Scored> order = scored(sink, ask.entities.size(), ask.low_is_worse);
    const std::size_t count = std::min(ask.worst, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
                      order.end(), worse);
    order.resize(count);
    if (order.empty()) {
        return out;
    }
    scan.columns = ask.columns;
    scan.entities.clear();
    for (const Scored& one : order) {
        scan.entities.push_back(ask.entities[one.which]);
    }
    std::sort(scan.entities.begin(), scan.entities.end());
    auto histories = fold_series(source, scan, tail);
    LOCKSTEP_TRY(histories);
    for (const Scored& one : order) {
        for (RankHistory& history : *histories) {
            if (history.rank == static_cast<std::int32_t>(ask.entities[one.which])) {
                out.worst.push_back({one.score, std::move(history)});
                break;
            }
        }
    }
    return out;
}

bool low_is_worse(std::string_view metric) {
    return metric == "comm_wait_seconds" || metric == "samples" || metric == "tokens" ||
           metric.ends_with("_per_second") || metric.ends_with("accuracy");
}

Json bands_json(const BandsAsk& ask, const Bands& bands) {
    Json out = Json::object();
    Json x = Json::array();
    for (const double value : bands.x) {
        x.push_back(ask.x == Axis::step ? Json(static_cast<std::int64_t>(value)) : Json(value));
    }
    out["x"] = std::move(x);
    out["count"] = bands.count;
    out["nonfinite"] = bands.nonfinite;
    for (std::size_t i = 0; i < ask.stats.size(); ++i) {
        out[std::string{kBandStatNames[static_cast<std::size_t>(ask.stats[i])]}] =
            column_json(bands.values[i]);
    }
    return out;
}

}  // namespace lockstep::telemetry
