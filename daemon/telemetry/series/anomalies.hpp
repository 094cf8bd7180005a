// What is wrong with a run that goes on, from what its ranks report: evaluated at every tick,
// reported once per episode. Formulas (the constants are Lockstep's):
//   straggler   S_r = clamp(median(b) / b_r, 0, 1) below the job's threshold and z_r > 6, of the
//               mean and of the newest busy time alike, for 20 steps and 30 s (job_stats.hpp)
//   spike       z = (x − EMA) / √EMVar with α = 0.02; loss z > 6, gradient norm z > 8
//   divergence  the mean of 10 minutes, and of 10 values or more, is above the lowest mean of as
//               many values in the 6 hours before: by half of that, and by 6 σ √(1/n + 1/m), with
//               the two numbers of values and σ² = mean (x_i − x_{i−1})² / 2 of the values before
//   data        half the alert's time: more than 15 % of the step time for 10 minutes
//   silent      no report for max(3 × its usual interval, 30 s) while most others report
//   nonfinite   the first rank, by step, whose own value was NaN or infinite; once per metric
// Of many ranks slow or silent at once, eight are reported per evaluation, the rest later.
// A rank that says it evaluates or saves (op "phase") is neither slow nor silent. Pure but for what
// it remembers; control thread only.
#pragma once

#include "daemon/telemetry/series/job_stats.hpp"
#include "daemon/telemetry/series/series.hpp"
#include "job/model/anomaly.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::telemetry {

struct Anomaly {
    AnomalyKind kind = AnomalyKind::straggler;
    std::int32_t rank = -1;  // -1: the job as a whole
    std::int64_t step = -1;  // -1: none
    std::string message;     // what was seen, with its numbers
    std::string metric{};    // nonfinite only: whose value it is
};

// How far above its own recent past a value is.
class SpikeWatch {
  public:
    // Takes the next value; one that is not finite is left out.
    void add(double value);
    // Of the newest value; nothing in the first kWarmUp.
    std::optional<double> z() const { return z_; }
    double mean() const { return mean_; }
    void reset() { *this = SpikeWatch{}; }

    static constexpr std::uint64_t kWarmUp = 50;

  private:
    std::uint64_t count_ = 0;
    double mean_ = 0;
    double variance_ = 0;
    std::optional<double> z_;
};

class AnomalyWatch {
  public:
    explicit AnomalyWatch(double straggler_score = 0.75) : stragglers_(straggler_score) {}

    // What the caller knows beside the series.
    struct Facts {
        double now = 0;    // the daemon's clock, Unix seconds
        double since = 0;  // since when the ranks of this generation run, same clock
        std::size_t ranks_per_node = 1;
        const std::vector<bool>* exited = nullptr;  // by rank; nullptr = none
    };
    // What has begun since it was last asked.
    std::vector<Anomaly> look(const JobSeries& job, const JobStats& stats, const Facts& facts);
    // The daemon was restarted, and the series are back from its store: what they show was
    // reported. Episodes that take time to notice (all but nonfinite) are noticed, and reported,
    // once more.
    void resume(const JobSeries& job);
    // Another generation: what was measured of the last one's ranks does not count.
    void restart();

    // For metrics; nothing = not known (yet).
    std::optional<double> loss_z() const { return loss_.z(); }
    std::optional<double> grad_norm_z() const { return grad_norm_.z(); }
    std::optional<std::size_t> straggler_ranks() const { return straggler_count_; }

  private:
    using Found = std::vector<Anomaly>;
    void look_for_stragglers(const JobSeries& job, const JobStats& stats, const Facts& facts,
                             Found& found);
    void look_for_nonfinite(const JobSeries& job, Found& found);
    void look_at_loss(const JobSeries& job, const JobStats& stats, const Facts& facts,
                      Found& found);
    void look_at_grad_norm(const JobStats& stats, Found& found);
    void look_for_divergence(const JobStats& stats, double now, Found& found);
    void look_for_starvation(const JobStats& stats, double now, Found& found);
    void look_for_silence(const JobSeries& job, const Facts& facts, Found& found);

    StragglerWatch stragglers_;
    std::optional<std::size_t> straggler_count_;
    std::set<std::int32_t> slow_;                // ranks that were reported
    std::set<std::size_t> slow_nodes_;           // nodes that were reported
    std::vector<std::uint64_t> nonfinite_seen_;  // by rank
    // By rank and metric, of those that have any.
    std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> nonfinite_of_;
    std::set<std::string> nonfinite_told_;  // metrics
    SpikeWatch loss_;
    SpikeWatch grad_norm_;
    bool loss_is_high_ = false;
    bool grad_norm_is_high_ = false;
    std::int64_t loss_step_ = -1;  // the newest step that loss_ has
    std::int64_t grad_norm_step_ = -1;
    struct Values {
        double sum = 0;
        double changes = 0;  // Σ (x_i − x_{i−1})²
        std::uint64_t count = 0;
        void add(double value, double change) {
            sum += value;
            changes += change;
            ++count;
        }
        void add(const Values& other) {
            sum += other.sum;
            changes += other.changes;
            count += other.count;
        }
        double mean() const { return sum / static_cast<double>(count); }
        // The standard deviation, of which a trend and a jump are no part.
        double noise() const { return std::sqrt(changes / (2 * static_cast<double>(count))); }
    };
    struct Minute {
        std::int64_t number = 0;  // of the Unix epoch
        Values all;
    };
    void take_minute(double loss, std::int64_t minute);
    std::deque<Minute> minutes_;         // of the loss: ascending, 6 hours at most
    std::optional<double> newest_loss_;  // that they have
    bool diverges_ = false;
    std::optional<double> starved_since_;
    bool starved_told_ = false;
    std::set<std::int32_t> silent_;
};

}  // namespace lockstep::telemetry
