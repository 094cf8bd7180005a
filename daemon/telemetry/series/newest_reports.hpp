// What is newest of every rank of a job, a column per figure. RankSeries knows the same rank by
// rank; aggregates, the watch over stragglers and /metrics walk over all ranks, and there each rank
// would cost them several misses of the cache.
// Owns its columns; control thread only.
#pragma once

#include "daemon/telemetry/series/rank_series.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::telemetry {

class NewestReports {
  public:
    explicit NewestReports(std::size_t ranks);

    // After a report of the rank has been added to its series.
    void take(std::size_t rank, const RankSeries& series);

    // By rank, as the functions of the same names in RankSeries say; kAbsent = none. Empty: no rank
    // has ever had one. Totals are those of the metrics that are Aggregate::total only.
    std::span<const double> latest(CoreMetric metric) const { return latest_[index(metric)]; }
    std::span<const double> total(CoreMetric metric) const { return total_[index(metric)]; }
    // Of those whose row says that a mean is kept.
    std::span<const double> mean(CoreMetric metric) const {
        return mean_.at(mean_place(index(metric)));
    }
    std::span<const double> interval() const { return interval_; }
    std::span<const std::int64_t> last_step() const { return last_step_; }
    std::span<const double> last_time() const { return last_time_; }
    std::span<const double> last_received() const { return last_received_; }
    std::span<const std::uint64_t> nonfinite() const { return nonfinite_; }
    bool any_nonfinite() const { return any_nonfinite_; }
    bool ever(std::size_t rank) const { return ever_[rank] != 0; }

    // Whether its last report is young enough to count: ≤ max(3 × the rank's usual interval, 30 s).
    bool reporting(std::size_t rank, double now) const {
        return ever(rank) && now - last_received_[rank] <= silence_[rank];
    }
    std::size_t bytes() const;

  private:
    using Column = std::vector<double>;
    void set(Column& column, std::size_t rank, double value) const;

    std::array<Column, kCoreMetrics> latest_;
    std::array<Column, kCoreMetrics> total_;
    std::array<Column, kMeanMetrics> mean_;  // by mean_place()
    Column interval_;
    std::vector<std::int64_t> last_step_;
    Column last_time_;
    Column last_received_;
    Column silence_;  // how old the last report may be
    std::vector<std::uint64_t> nonfinite_;
    std::vector<std::uint8_t> ever_;
    bool any_nonfinite_ = false;
};

}  // namespace lockstep::telemetry
