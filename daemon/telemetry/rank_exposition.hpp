// The ranks' part of /metrics: where each is, eight gauges of each, further series of jobs that are
// small enough, as far as the budget of series goes. Borrows the views, which must outlive it.
// Control thread only.
#pragma once

#include "daemon/telemetry/exposition.hpp"
#include "daemon/telemetry/gpu_table.hpp"
#include "daemon/telemetry/shard.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

class RankExposition {
  public:
    // Of all ranks, or of those of a part of one job.
    explicit RankExposition(const MetricsView& view, Shard shard = {})
        : view_(view), shard_(shard) {}

    // Of one job; `labels`: its job_id="…". `stats` is of its series and not used without.
    void add(const JobMetricsView& job, const std::string& labels, const JobStats& stats);
    // All that was added.
    void write(MetricText& text) const;
    // Series that the budget has left out, of all parts.
    std::size_t suppressed() const { return suppressed_; }

  private:
    // The gauges of one rank, copied together: eight families walk over all ranks, and each walk
    // through the series themselves would miss the cache at every rank.
    struct ShownRank {
        std::size_t labels_begin = 0;  // label block, in RankExposition::labels_
        std::size_t labels_end = 0;
        double step = kAbsent;
        double loss = kAbsent;
        double step_seconds = kAbsent;
        double busy_seconds = kAbsent;
        double comm_wait_seconds = kAbsent;
        double data_wait_seconds = kAbsent;
        double straggler_score = kAbsent;
        double report_age = kAbsent;
    };
    // The further ones, of jobs that are small enough.
    struct FullRank {
        std::size_t rank = 0;  // in RankExposition::ranks_
        double samples = kAbsent;
        double tokens = kAbsent;
        double grad_norm = kAbsent;
        double learning_rate = kAbsent;
        double checkpoint = kAbsent;
        double nonfinite = kAbsent;
    };
    struct Placed {
        const JobMetricsView* job = nullptr;
        std::string labels;
        std::vector<RankGpu> gpus;
    };

    std::size_t most_ranks() const { return view_.max_series_per_job / kRankCoreSeries; }
    void place(const JobMetricsView& job, const std::string& labels);
    void add_core(const JobSeries& series, std::size_t rank, const std::string& labels,
                  const JobStats& stats);
    void add_full(const RankSeries& series);
    void write_info(MetricText& text) const;
    void write_core(MetricText& text) const;
    void write_full(MetricText& text) const;
    void gauge(MetricText& text, std::string_view name, std::string_view help,
               double ShownRank::*field) const;
    void further(MetricText& text, std::string_view name, MetricType type, std::string_view help,
                 double FullRank::*field) const;
    std::string_view labels(const ShownRank& rank) const;

    const MetricsView& view_;
    Shard shard_;
    std::vector<Placed> placed_;
    std::vector<ShownRank> ranks_;
    std::vector<FullRank> full_;
    std::string labels_;  // every label block once; eight families use it
    std::size_t suppressed_ = 0;
};

}  // namespace lockstep::telemetry
