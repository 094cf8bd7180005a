// The history of one rank in memory: rows of (step, time) with one column per metric.
//
// A row holds one report at first. When the rank has as many rows as it may keep, neighbouring rows
// are merged two by two, and from then on each row holds twice as many reports (`stride`): the
// whole run stays visible, and the lowest, the highest and the last value of every row are exact.
// Nothing is ever picked at random. The step and the time of a merged row are those of its newest
// report.
//
// Non-finite values stay out of low and high. Where and what they were is kept beside the rows for
// the first limits::kNonfiniteKept of a metric, their number for all.
//
// Owns its rows. Control thread only.
#pragma once

#include "daemon/telemetry/history/special_values.hpp"
#include "daemon/telemetry/series/rank_metrics.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::telemetry {

// Mean with memory: α = 2 / (N + 1) with N = 20 samples; starts at the first sample.
class Ewma20 {
  public:
    void add(double sample);
    std::optional<double> value() const;

  private:
    double mean_ = kAbsent;
};

// One metric of one rank. `last` has a value per row or is shorter (the rest is absent).
struct MetricColumn {
    std::vector<double> last;
    std::vector<double> low;   // empty while every row holds one report: low = high = last then
    std::vector<double> high;  // as low
    double latest = kAbsent;
    std::uint64_t nonfinite_total = 0;  // never goes back, restarts included
    std::vector<Nonfinite> nonfinite;   // the first limits::kNonfiniteKept

    // The three of one row; kAbsent where nothing (finite) is. `last` may be non-finite.
    double last_of(std::size_t row) const { return row < last.size() ? last[row] : kAbsent; }
    double low_of(std::size_t row) const;
    double high_of(std::size_t row) const;
    std::size_t heap() const;  // bytes
};

// What a rank has counted since its job began: no start of the rank or of the daemon takes it back.
struct RankTotals {
    static constexpr std::array<double, kCoreMetrics> none() {
        std::array<double, kCoreMetrics> values{};
        values.fill(kAbsent);
        return values;
    }
    std::array<double, kCoreMetrics> sum = none();  // of finite values; kAbsent = never reported
    std::array<std::uint32_t, kCoreMetrics> core_nonfinite{};  // values that were not finite
    std::uint64_t nonfinite = 0;                               // the same of all metrics
};

class RankSeries {
  public:
    // One report. `values` are indexed by metric id, kAbsent = not in it; a NaN must be the quiet
    // NaN without payload. `received`: the daemon's clock, seconds since the Unix epoch.
    // A step below 0 means not given: the rank's last step is used. At most `capacity` (≥ 2) rows
    // are kept. `seen`, by id: metrics beside the core ones that the agent sees (RankMetric::seen).
    // `still_at`: when the job last stood still by the scheduler's doing, as `time`; 0 = never.
    // Whether earlier steps were replaced, see restart().
    bool add(std::int64_t step, double time, double received, const std::vector<double>& values,
             std::size_t capacity, const std::vector<bool>& seen = {}, double still_at = 0);
    // A new start of the rank: from its first report with a step s on, what was recorded for the
    // steps ≥ s is replaced. A merged row that reaches to s or beyond goes as a whole.
    void restart() { cut_pending_ = !empty(); }
    // The step that a report without one belongs to; -1 = none.
    std::int64_t step_of(std::int64_t given) const {
        return given >= 0 || cut_pending_ ? given : last_step_;
    }

    bool empty() const { return reports_ == 0; }
    std::uint64_t reports() const { return reports_; }
    std::size_t rows() const { return steps_.size(); }
    std::uint64_t stride() const { return stride_; }  // reports per full row
    std::int64_t step(std::size_t row) const { return steps_[row]; }
    double time(std::size_t row) const { return times_[row]; }
    // nullptr if the rank never reported it.
    const MetricColumn* column(std::size_t metric) const;

    std::int64_t last_step() const { return last_step_; }  // -1 = none yet
    double last_time() const { return last_time_; }        // the rank's clock; 0 = none yet
    double last_received() const { return last_received_; }
    // When the newest row came in that its agent has seen and not itself said, of metrics that are
    // not core; 0 = none yet.
    double last_seen() const { return last_seen_; }
    // As if it had never had a value; what was kept of it stays.
    void forget_latest(std::size_t metric);
    std::optional<double> latest(std::size_t metric) const;
    std::optional<double> latest(CoreMetric metric) const {
        const double value = core_latest_[index(metric)];
        return is_absent(value) ? std::nullopt : std::optional{value};
    }
    // Sum of all finite values ever reported, restarts included.
    std::optional<double> total(CoreMetric metric) const {
        const double sum = totals_.sum[index(metric)];
        return is_absent(sum) ? std::nullopt : std::optional{sum};
    }
    // Values that were not finite, ever: of one core metric, and of all metrics.
    std::uint64_t nonfinite(CoreMetric metric) const {
        return totals_.core_nonfinite[index(metric)];
    }
    std::uint64_t nonfinite() const { return totals_.nonfinite; }
    // Instead of what the reports so far have counted.
    void set_totals(const RankTotals& totals) { totals_ = totals; }
    // Mean of the newest reports (EWMA20); nothing of a metric whose row has none.
    std::optional<double> mean(CoreMetric metric) const;
    // Mean seconds between two reports, but where the job stood still between them.
    std::optional<double> interval() const { return interval_.value(); }

    // Metrics that it has reported, and what all of it takes, bytes: kept up to date, not counted.
    std::size_t metrics() const { return metrics_; }
    std::size_t bytes() const { return sizeof *this + heap_; }

  private:
    void cut(std::int64_t step);
    void note_latest(std::int64_t step, double time, const std::vector<double>& values);
    bool fill_newest(std::int64_t step, const std::vector<double>& values);
    void append(std::int64_t step, double time, const std::vector<double>& values);
    void merge_pairs();
    void put(std::size_t metric, std::size_t row, double value);
    std::size_t count_heap() const;

    std::vector<std::int64_t> steps_;
    std::vector<double> times_;
    std::vector<MetricColumn> columns_;
    std::uint64_t stride_ = 1;
    std::uint64_t filled_ = 0;  // reports in the newest row
    std::uint64_t reports_ = 0;
    std::int64_t last_step_ = -1;
    double last_time_ = 0;
    double last_received_ = 0;
    double last_seen_ = 0;
    bool cut_pending_ = false;
    // Here and not in the columns: NewestReports takes them after every report.
    std::array<double, kCoreMetrics> core_latest_ = RankTotals::none();
    RankTotals totals_;
    Ewma20 interval_;
    std::array<Ewma20, kMeanMetrics> means_;  // by mean_place()
    std::size_t metrics_ = 0;
    std::size_t heap_ = 0;  // count_heap()
};

}  // namespace lockstep::telemetry
