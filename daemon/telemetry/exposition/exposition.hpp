// The bodies of GET /metrics (the daemon's own metrics, the process, jobs and ranks) and of
// GET /metrics/jobs/{id} (what is one job's of it, or a part). Names and
// meaning: README.md beside this file. Jobs and ranks are rendered straight from the
// series, without a registry: 200,000 rank series take milliseconds and no second copy.
//
// What is not known is left out, never written as 0. A rank's series vanish when its last report is
// older than max(3 × its usual interval, 30 s); Prometheus then marks them stale. No timestamps.
//
// Pure but for reading /proc; control thread only. The views are borrowed for the call.
#pragma once

#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "daemon/telemetry/exposition/gpu_owners.hpp"
#include "daemon/telemetry/exposition/gpu_table.hpp"
#include "daemon/telemetry/exposition/metric_text.hpp"
#include "daemon/telemetry/exposition/rank_families.hpp"
#include "daemon/telemetry/exposition/shard.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "daemon/telemetry/series/series.hpp"
#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/model/anomaly.hpp"
#include "job/model/spans.hpp"
#include "job/model/state.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::telemetry {

// How a job ended, in the words of lockstep_jobs_finished_total.
enum class FinishResult : std::uint8_t {
    completed,
    failed,
    cancelled,
    timeout,
    node_fail,
    preempted,
    oom,
};
inline constexpr std::size_t kFinishResults = 7;
inline constexpr std::array<std::string_view, kFinishResults> kFinishResultNames{
    "completed", "failed", "cancelled", "timeout", "node_fail", "preempted", "oom"};
static_assert(names_all_of<FinishResult>(kFinishResultNames));
// `state` must be final.
FinishResult finish_result(JobState state, CauseClass cause);

struct RankMetricsView {
    std::int32_t rank = 0;
    std::int32_t local_rank = 0;
    std::string_view node;
};

// One job as control sees it. Empty texts and absent optionals are left out.
struct JobMetricsView {
    std::string_view job_id;
    std::string_view name;
    std::string_view user;
    std::string_view framework;
    std::string_view cluster_label;  // by which other exporters of the cluster know the job
    std::string_view cluster_job;    // its value
    std::string_view account;
    std::string_view partition;
    std::string_view qos;
    JobState state = JobState::accepted;
    // It has no allocation: it is between two attempts or in the queue for one. Of what its ranks
    // have reported only counters and how far they came is shown (past_job_stats()): everything
    // else is about ranks that do not run, and alerts on it, as of slow ones, hangs or waits for
    // data, would go on for as long as the job waits.
    bool waits = false;
    std::int32_t ranks_expected = 0;
    std::int32_t nodes = 0;            // of the current attempt; 0 = none
    std::int32_t nodes_requested = 0;  // of a job that may run on fewer; 0 = it may not
    std::array<std::uint64_t, kCauseClasses> restarts{};  // generations and attempts, by cause
    std::array<double, kSpans> span_seconds{};
    std::optional<double> ettr;
    std::optional<std::int64_t> lost_steps;
    std::optional<double> last_checkpoint_time;  // seconds since the Unix epoch
    const JobSeries* series = nullptr;           // nullptr = nothing reported
    const JobStats* stats = nullptr;             // of `series`; nullptr = computed here
    std::optional<std::size_t> straggler_ranks;
    std::array<std::int64_t, kAnomalyKinds> anomalies{};
    std::optional<double> loss_zscore;
    std::optional<double> grad_norm_zscore;
    std::optional<bool> hang;  // of the live generation; absent = without an allocation
    // While it has an allocation; rendezvous_age: seconds that its nodes have been meeting for, 0 =
    // they have met.
    std::optional<std::int64_t> ranks_joined;
    double rendezvous_age = 0;
    std::int32_t generation = 0;
    std::span<const RankMetricsView> ranks;  // placed ranks; empty = none
};

// Of one rank, as far as the budget goes (limits::kSeriesPerJob): the core series, and the further
// ones.
inline constexpr std::size_t kRankCoreSeries = 1 + rank_families(Shown::of_many);  // and the info
inline constexpr std::size_t kRankFullSeries = rank_families(Shown::of_few);
static_assert(limits::kFullTierRanks * (kRankCoreSeries + kRankFullSeries) <= limits::kSeriesPerJob,
              "the further series of a job that is small enough fit");

// Of a job that waits for an allocation.
struct StartEstimateView {
    std::string_view job_id;
    double start = 0;  // as the scheduler estimates, seconds since the Unix epoch
};

struct MetricsView {
    std::size_t max_series_per_job = limits::kSeriesPerJob;
    double now = 0;                                // seconds since the Unix epoch
    std::array<std::uint64_t, kJobStates> jobs{};  // how many are in each state
    std::uint64_t submitted_total = 0;
    std::array<std::uint64_t, kFinishResults> finished_total{};
    std::span<const JobMetricsView> active;  // jobs with series of their own
    // The first limits::kSilentJobsShown are shown, in the body of all jobs only.
    std::span<const StartEstimateView> starts{};
    const GpuTable* gpus = nullptr;  // nullptr = no GPUs
    JobFilter gpu_jobs{};            // whose GPUs are shown; empty = everybody's
};

// A job without a report yet takes at least so many series, 3 KiB. Those beyond
// limits::kSilentJobsShown of `active` count in lockstep_jobs and in
// lockstep_exposition_suppressed_series.
inline constexpr std::size_t kSilentJobSeries = 34 + kAnomalyKinds;

// Jobs and ranks only.
void write_jobs(MetricText& text, const MetricsView& view);

// One job's series, or a part of them: the first of `view.active`, none if there is none.
void write_job(MetricText& text, const MetricsView& view, Shard shard);

// Everything: the body that goes with content_type(format), piece by piece. Observes its own
// duration, without that of the sink, and its size, which show in the next body.
void render_metrics(TextFormat format, DaemonMetrics& daemon, const MetricsView& view,
                    const PieceSink& sink);
// The same as one string.
std::string render_metrics(TextFormat format, DaemonMetrics& daemon, const MetricsView& view);
// What write_job() writes, as a body. Observes its duration.
std::string render_job(TextFormat format, DaemonMetrics& daemon, const MetricsView& view,
                       Shard shard);

}  // namespace lockstep::telemetry
