// What is wrong with a running job, from its ranks' reports alone: pure, fed with every new picture
// of the job, says what began and what is over. Control thread only.
//
// Formulas (research: NVRx, Megatron, ZClip; EMA as in arXiv 2504.02507, thresholds our own):
//   straggler   job_stats.hpp: score < 0.75 and z > 6 for 20 steps and 30 s, not within the first
//               60 steps of a generation (a slow first step is in the EWMA20 until then); a node is
//               one if at least half of its ranks (two or more) are; its class is the part of the
//               step with the largest excess over the median
//   non-finite  the rank whose local loss or gradient norm was first NaN or infinite, by step
//   spike       z = (x − EMA) / √EMVar, α = 0.02; loss z > 6, gradient norm z > 8; after 100
//   values,
//               and 20 after a restart
//   divergence  mean loss of 10 minutes > 1.5 × the lowest minute of 6 hours before, if above 0
//   starvation  share of step time spent waiting for data > 0.15 for 10 minutes
//   silent      no report for max(3 × its interval, 30 s) while at least half of the others report
#pragma once

#include "daemon/telemetry/job_stats.hpp"
#include "daemon/telemetry/series.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::telemetry {

enum class AnomalyKind : std::uint8_t {
    straggler,
    slow_node,
    nonfinite,
    loss_spike,
    grad_norm_spike,
    divergence,
    data_starvation,
    silent_rank,
};
inline constexpr std::size_t kAnomalyKinds = 8;
inline constexpr std::array<std::string_view, kAnomalyKinds> kAnomalyNames{
    "straggler",       "slow_node",  "nonfinite",       "loss_spike",
    "grad_norm_spike", "divergence", "data_starvation", "silent_rank"};

// The part of the step that makes a straggler.
enum class Excess : std::uint8_t { unknown, compute, data, comm };

struct Anomaly {
    AnomalyKind kind = AnomalyKind::straggler;
    bool over = false;       // it has ended
    std::int32_t rank = -1;  // -1 = of the job, or of a node
    std::int32_t node = -1;  // slow_node only
    std::int64_t step = -1;
    double value = 0;  // what was seen: score, z, ratio, seconds
    double limit = 0;  // what it was held against
    Excess excess = Excess::unknown;
};

// An exponential mean and variance: α = 0.02. What is far out counts as if it were at the limit, so
// that one spike does not hide the next, and a new level is taken on after a while.
class SpikeWatch {
  public:
    explicit SpikeWatch(double limit) : limit_(limit) {}
    // z of a finite value before it is taken in; nothing while there are too few.
    std::optional<double> add(double value);
    void restarted() { since_restart_ = 0; }

  private:
    double limit_;
    double mean_ = 0;
    double variance_ = 0;
    std::size_t count_ = 0;
    std::size_t since_restart_ = 0;
};

// 10-minute mean against the lowest minute of the 6 hours before.
class DivergenceWatch {
  public:
    // {mean, limit} once there are 10 minutes.
    std::optional<std::pair<double, double>> add(double value, double now);

  private:
    struct Minute {
        std::int64_t number = 0;
        double sum = 0;
        std::size_t count = 0;
    };
    std::deque<Minute> minutes_;
};

struct JobPicture {
    const JobSeries* series = nullptr;
    const JobStats* stats = nullptr;
    double now = 0;  // the daemon's clock, seconds since the Unix epoch
    // The ranks are in steps of training: not in a checkpoint, an evaluation, or between two
    // generations. Only then do times say anything.
    bool training = true;
    std::span<const std::int32_t> nodes;  // of each rank; empty = unknown
};

class AnomalyWatch {
  public:
    explicit AnomalyWatch(double straggler_score = 0.75)
        : score_(straggler_score), stragglers_(straggler_score) {}
    // What has begun or ended since the last picture, in the order of the kinds, ranks ascending.
    std::vector<Anomaly> update(const JobPicture& picture);

  private:
    using Key = std::pair<AnomalyKind, std::int32_t>;  // rank or node
    using Found = std::map<Key, Anomaly>;
    void stragglers(const JobPicture& picture, Found& found);
    void nonfinite(const JobPicture& picture, Found& found);
    void losses(const JobPicture& picture, Found& found);
    void waiting(const JobPicture& picture, Found& found);
    void silent(const JobPicture& picture, Found& found) const;
    void spike(AnomalyKind kind, SpikeWatch& watch, std::optional<double> value, double limit,
               std::int64_t step, Found& found);

    double score_;
    StragglerWatch stragglers_;
    SpikeWatch loss_{6};
    SpikeWatch grad_norm_{8};
    DivergenceWatch divergence_;
    std::map<AnomalyKind, int> calm_;  // values since a spike
    std::int64_t last_step_ = -1;
    std::size_t generations_ = 0;
    std::int64_t generation_began_ = -1;
    std::optional<double> starved_since_;
    Found active_;
};

}  // namespace lockstep::telemetry
