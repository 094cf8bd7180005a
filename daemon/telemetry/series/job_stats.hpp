// Aggregates over a job's ranks, from their newest reports: what /metrics, the job's page and the
// command line show. Pure functions over a JobSeries; control thread only.
// Formulas: straggler score S_r = clamp(median(b) / b_r, 0, 1) and z_r = 0.6745 · (b_r − median) /
// max(MAD, 1 % of the median), with b_r = EWMA20 of the rank's busy seconds. Busy time and not step
// time: in synchronous training all ranks show the same step time, and the slow one is the one that
// waits least.
#pragma once

#include "daemon/telemetry/series/series.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::telemetry {

struct Spread {
    double mean = 0;
    double min = 0;
    double p50 = 0;  // nearest rank
    double p99 = 0;  // nearest rank
    double max = 0;
};

// Absent = no rank reported it. "The ranks" below are those reporting at the moment, or, when none
// is (the job is over, or between two generations), all that ever reported.
struct JobStats {
    std::size_t ranks_reporting = 0;
    std::optional<std::int64_t> step;      // the highest that all the ranks have reached
    std::optional<double> last_step_time;  // newest report with a step; Unix seconds
    std::optional<std::int64_t> total_steps;
    // At `step`: each rank's newest loss (step time) up to it. A NaN or infinite loss of any rank
    // makes loss.mean NaN; min, max, p50, p99 are over the finite ones and NaN if there are none.
    std::optional<Spread> loss;
    std::optional<Spread> step_seconds;
    std::optional<double> samples_total;  // all ranks, repeated steps included
    std::optional<double> tokens_total;
    std::optional<double> samples_per_second;  // sum over ranks of EWMA20(samples)/interval
    std::optional<double> data_wait_ratio;     // Σ EWMA20(data wait) / Σ EWMA20(step)
    std::optional<double> comm_exposed_ratio;  // Σ EWMA20(comm wait) / Σ EWMA20(step)
    std::optional<double> grad_norm;           // of the lowest rank that reports it
    std::optional<double> learning_rate;       // same
    std::optional<double> mfu;                 // mean of the ranks' newest finite ones
    std::optional<double> checkpoint_seconds;  // total of the rank that spent most on it
    std::uint64_t nonfinite_loss = 0;          // reports ever, all ranks
    std::uint64_t nonfinite_grad_norm = 0;
    std::uint64_t nonfinite_other = 0;
    // Per rank, 0..1, kAbsent if it has no busy time; empty if fewer than two ranks have.
    std::vector<double> straggler_score;
    std::vector<double> straggler_z;
    std::optional<std::size_t> slowest_rank;  // lowest score; the lowest rank of equals
};

// Its counters: they never fall, neither when a rank goes quiet nor with a restart of the daemon.
JobTotals job_totals(const JobSeries& job);
// What of them the own counters of the first so many ranks do not contain. With those it is never
// less than all of them.
JobTotals totals_beyond(const JobSeries& job, std::size_t ranks);

// `now`: the daemon's clock, seconds since the Unix epoch.
JobStats compute_job_stats(const JobSeries& job, double now);
// Of a job that has no ranks at the moment, what is no figure of one moment: steps and counters.
JobStats past_job_stats(const JobSeries& job);

// Who is a straggler: score < threshold and z > 6 for at least 20 steps and 30 s, of the mean of
// its busy times and of the newest one: a first step that compiled, or an evaluation, stays in the
// mean for long. Remembers since when; one per job, fed with every new JobStats.
class StragglerWatch {
  public:
    explicit StragglerWatch(double threshold = 0.75) : threshold_(threshold) {}
    // The ranks that are stragglers now, ascending.
    std::vector<std::size_t> update(const JobSeries& job, const JobStats& stats, double now);
    void reset() { since_.clear(); }

  private:
    struct Since {
        std::int64_t step = -1;  // -1 = not slow
        double time = 0;
    };
    double threshold_;
    std::vector<Since> since_;
};

}  // namespace lockstep::telemetry
