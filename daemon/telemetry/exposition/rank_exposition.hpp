// The ranks' part of /metrics: where each is, the families of kRankFamilies of each, of which some
// only in jobs that are small enough, as far as the budget of series goes. Borrows the views, which
// must outlive it. Control thread only.
#pragma once

#include "daemon/telemetry/exposition/exposition.hpp"
#include "daemon/telemetry/exposition/gpu_table.hpp"
#include "daemon/telemetry/exposition/shard.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

class RankExposition {
  public:
    // Of all ranks, or of those of a part of one job.
    explicit RankExposition(const MetricsView& view, Shard shard = {})
        : view_(view), shard_(shard) {}

    // Of one job; `labels`: its job_id="…". `stats` is of its series and not used without; borrowed
    // until write().
    void add(const JobMetricsView& job, const std::string& labels, const JobStats& stats);
    // All that was added.
    void write(MetricText& text) const;
    // A little more than write() writes, bytes.
    std::size_t expected_size() const;
    // Series that the budget has left out, of all parts.
    std::size_t suppressed() const { return suppressed_; }

  private:
    // Those of one job that are shown. Their figures are taken from the columns of NewestReports,
    // one family after the other.
    struct ShownRanks {
        const JobSeries* series = nullptr;
        const JobStats* stats = nullptr;
        bool full = false;           // with the further series
        std::size_t bandwidths = 0;  // of NCCL, among these
        std::vector<std::uint32_t> ranks;
        std::string labels;             // every label block once; all families use it
        std::vector<std::size_t> ends;  // of each block; it begins where the one before ends
    };
    struct Placed {
        const JobMetricsView* job = nullptr;
        std::string labels;
        std::vector<RankGpu> gpus;
    };

    std::size_t most_ranks() const { return view_.max_series_per_job / kRankCoreSeries; }
    void place(const JobMetricsView& job, const std::string& labels);
    void write_info(MetricText& text) const;
    void write_family(MetricText& text, const RankFamily& family) const;
    void write_nccl_bandwidth(MetricText& text) const;
    template <class Values>
    void each(MetricText& text, Shown shown, const Values& values_of) const;

    const MetricsView& view_;
    Shard shard_;
    std::vector<Placed> placed_;
    std::vector<ShownRanks> shown_;
    std::size_t suppressed_ = 0;
};

}  // namespace lockstep::telemetry
