// Recent history in memory: per job, rank and metric. Fed with the batches of the agents as they
// become durable; after a restart of the daemon the same batches in the same order restore it.
// History on disk begins here: keep_history() collects every accepted row for it, and restore()
// takes back what was read from there.
//
// Owns all series; control thread only. A JobSeries lives until SeriesStore::erase().
#pragma once

#include "daemon/telemetry/series/gpu_history.hpp"
#include "daemon/telemetry/series/history.hpp"
#include "daemon/telemetry/series/newest_reports.hpp"
#include "daemon/telemetry/series/rank_series.hpp"
#include "daemon/telemetry/series/recent_steps.hpp"
#include "daemon/telemetry/series/step_columns.hpp"
#include "daemon/telemetry/series/step_times.hpp"
#include "job/base/limits.hpp"
#include "job/model/nccl_bandwidth.hpp"
#include "job/model/spans.hpp"
#include "job/model/wire/batch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::telemetry {

// What became of a batch. rows + every drop = rows of the batch.
struct Ingested {
    bool duplicate = false;          // this batch or a later one of the same node was here before
    std::size_t rows = 0;            // reports added
    std::size_t samples = 0;         // values in them
    std::size_t late_rows = 0;       // of an earlier generation than the rank's newest report
    std::size_t late_values = 0;     // in them
    std::size_t bad_rows = 0;        // a rank outside the job
    std::size_t bad_values = 0;      // in them
    std::size_t dropped_values = 0;  // of metrics beyond limits::kMetricsPerJob
};

// What a job has counted since it began, all ranks together. Absent = no rank reported it.
struct JobTotals {
    std::optional<double> samples;
    std::optional<double> tokens;
    std::optional<double> checkpoint_seconds;  // of the rank that spent most on it
    std::uint64_t nonfinite_loss = 0;          // reports
    std::uint64_t nonfinite_grad_norm = 0;
    std::uint64_t nonfinite_other = 0;
};

// What came back with restore_totals(); nothing did: as it is made.
struct RestoredTotals {
    JobTotals earlier{};
    std::size_t ranks = 0;          // whose own totals came back: the first so many
    double checkpoint_seconds = 0;  // the most that one of these had spent then
};

class JobSeries {
  public:
    // `ranks` 1..limits::kRanks: the job's world size. Rows of other ranks are dropped.
    explicit JobSeries(std::size_t ranks);

    // Adds a batch. Batches of a node are numbered from 1 in every attempt, so (attempt, node_rank,
    // seq) says whether it is new: a number at or below the last one seen is a replay and changes
    // nothing. A rank whose generation went up was restarted (RankSeries::restart).
    // `received`: the daemon's clock in seconds since the Unix epoch; 0 when restoring, the
    // reports' own time is used then.
    Ingested ingest(const Batch& batch, std::int32_t attempt, double received);

    // The scheduler had suspended the job at this time (seconds since the Unix epoch; 0 = never):
    // how long a rank then says nothing is neither an interval between reports nor a step.
    // Ascending; may be said again.
    void stood_still(double at) {
        if (at > 0 && (still_at_.empty() || at > still_at_.back())) {
            still_at_.push_back(at);
        }
    }

    // Adds what was kept of a look at a node's GPUs, to history() only; how many rows. `received`
    // as above.
    std::size_t ingest(const GpuRows& rows, std::int32_t attempt, double received);
    GpuHistory& gpus() { return gpus_; }
    const GpuHistory& gpus() const { return gpus_; }
    // The newest step that a rank has reported in that generation; -1 = none. Any rank: all.
    std::int64_t step_in(Start start, const std::vector<std::uint32_t>& ranks) const;

    // From now on accepted rows go into history() too.
    History& keep_history();
    History* history() const { return history_.get(); }  // nullptr = not kept

    // From now on the metric's steps are collected, of all ranks. Good until watch_only().
    StepColumns& watch(const std::string& metric);
    // Nothing but these is collected any more.
    void watch_only(const std::vector<std::string>& metrics);

    // What history holds, oldest first and before any ingest(): a row, with `values` by metric id
    // (at least the core metrics), and what a job knows beyond its rows.
    void restore(Start start, std::uint32_t rank, std::int64_t step, double time,
                 const std::vector<double>& values);
    void restore_seen(std::int32_t attempt, std::uint32_t node_rank, std::uint64_t seq);
    void restore(GenerationReport report);
    // After the rows: what had been counted when the newest of them was stored, instead of what the
    // rows count, which may be a part of all there were. Of `ranks`, by rank, those that are absent
    // have counted nothing; `earlier` is what no rank's own totals contain (restored()).
    void restore_totals(const std::vector<RankTotals>& ranks, const JobTotals& earlier);
    // The same of how long steps took: the rows are there rank by rank, and what a rank says of its
    // phases belongs to the moment at which it does.
    void restore_step_times(const StepTimes& times) { step_times_ = times; }
    // (attempt, node) → number of its newest batch.
    const std::map<std::pair<std::int32_t, std::uint32_t>, std::uint64_t>& seen() const {
        return seen_;
    }
    // The id of a metric, made if it is new; nothing if the job has too many.
    std::optional<std::size_t> add_metric(std::string_view name);

    std::size_t world_size() const { return ranks_.size(); }
    // The first so many of them are those of the present generation; by default all. The others
    // only have a history; no further reports of them are expected.
    void have_ranks(std::size_t ranks) { present_ = std::min(ranks, ranks_.size()); }
    std::size_t present() const { return present_; }
    // rank < world_size(); empty() if it never reported.
    const RankSeries& rank(std::size_t rank) const { return ranks_[rank].series; }
    // What the job had counted before its ranks' own totals begin: of the higher ranks of a large
    // job these are not stored. Nothing otherwise. All of it: job_totals() (job_stats.hpp).
    const RestoredTotals& restored() const { return restored_; }
    // The same of all ranks, column by column: for walks over all of them.
    const NewestReports& newest() const { return newest_; }
    const RecentSteps& recent() const { return recent_; }
    const StepTimes& step_times() const { return step_times_; }
    // The number of the newest batch of a node in an attempt; 0 if there was none.
    std::uint64_t last_batch(std::int32_t attempt, std::int32_t node_rank) const;
    // What each generation made of its steps, in order; only those of which a batch came.
    const std::vector<GenerationReport>& generations() const { return generations_; }
    // That of one generation; nullptr if no batch of it came. Good until the next ingest().
    const GenerationReport* report_of(std::int32_t attempt, std::int32_t generation) const;
    // Metric ids, core metrics first, then in the order of their first appearance.
    std::optional<std::size_t> metric(std::string_view name) const;
    const std::vector<std::string>& metrics() const { return metrics_; }
    // Of the bus bandwidths of NCCL (nccl_bandwidth.hpp), by place; nothing of those that no rank
    // has.
    using NcclBandwidthIds = std::array<std::optional<std::size_t>, kNcclBandwidths>;
    const NcclBandwidthIds& nccl_bandwidths() const { return nccl_bandwidths_; }
    // Names that some rank has reported, in id order.
    std::vector<std::string> reported_metrics() const;

    // How old a rank's last report is at `now`, seconds; nothing if it never reported.
    std::optional<double> report_age(std::size_t rank, double now) const;

    // Series held (rank × metric) and what they take, bytes. Neither costs a walk over the ranks.
    std::size_t series() const { return series_; }
    std::size_t bytes() const;

  private:
    struct Rank {
        RankSeries series;
        Start start;
        double checkpoint_seconds = 0;  // in that generation
    };
    bool begin_row(Rank& rank, Start start);
    // When the job was last suspended before that time; 0: never. Of two rows the later one tells
    // by it whether that was between them, when they are read back long after as well.
    double still_before(double time) const {
        const auto after = std::upper_bound(still_at_.begin(), still_at_.end(), time);
        return after == still_at_.begin() ? 0 : *std::prev(after);
    }
    void add_row(Start start, std::size_t rank, std::int64_t step, double time, double received,
                 const std::vector<double>& values, std::size_t capacity);
    GenerationReport& generation(std::int32_t attempt, std::uint32_t number);
    std::vector<std::optional<std::size_t>> metric_ids(const Batch& batch);
    std::size_t capacity() const;

    std::vector<Rank> ranks_;
    std::size_t present_;
    std::vector<double> still_at_;      // ascending
    std::optional<std::size_t> phase_;  // the metric that op "phase" makes
    NewestReports newest_;
    RestoredTotals restored_;
    RecentSteps recent_;
    StepTimes step_times_;
    std::size_t series_ = 0;
    std::size_t rank_bytes_ = 0;  // of ranks_
    std::vector<std::string> metrics_;
    std::vector<bool> seen_by_agent_;            // by metric id, beside the core ones
    std::vector<GenerationReport> generations_;  // a batch is mostly of the last
    std::map<std::pair<std::int32_t, std::uint32_t>, std::uint64_t> seen_;  // attempt, node → seq
    NcclBandwidthIds nccl_bandwidths_{};
    std::shared_ptr<History> history_;
    GpuHistory gpus_;
    std::map<std::string, StepColumns> watched_;  // by metric
};

class SeriesStore {
  public:
    // The job's series, made on first use.
    JobSeries& job(std::string_view id, std::size_t ranks);
    const JobSeries* find(std::string_view id) const;
    JobSeries* at(std::string_view id);  // the same
    // Later, if its history is being written just now.
    void erase(std::string_view id);

    std::size_t jobs() const { return jobs_.size(); }
    std::size_t series() const;
    std::size_t bytes() const;

  private:
    std::map<std::string, std::unique_ptr<JobSeries>, std::less<>> jobs_;
};

}  // namespace lockstep::telemetry
