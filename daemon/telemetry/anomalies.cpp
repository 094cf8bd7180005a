#include "daemon/telemetry/anomalies.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::telemetry {
namespace {

constexpr double kAlpha = 0.02;
constexpr std::size_t kSpikeValues = 100;
constexpr std::size_t kSpikeAfterRestart = 20;
constexpr int kCalm = 5;  // values in a row below half the limit end a spike
constexpr std::int64_t kSettlingSteps = 60;
constexpr double kStarved = 0.15;
constexpr double kStarvedSeconds = 600;
constexpr double kDiverged = 1.5;
constexpr std::int64_t kMeanMinutes = 10;
constexpr std::int64_t kLowestMinutes = 360;

double median_of(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// Which part of a step is longer than the median's by most.
Excess excess_of(const JobSeries& series, std::size_t rank) {
    constexpr std::array<std::pair<CoreMetric, Excess>, 3> kParts{
        {{CoreMetric::busy_seconds, Excess::compute},
         {CoreMetric::data_wait_seconds, Excess::data},
         {CoreMetric::comm_wait_seconds, Excess::comm}}};
    Excess out = Excess::unknown;
    double most = 0;
    for (const auto& [metric, excess] : kParts) {
        std::vector<double> all;
        for (std::size_t i = 0; i < series.world_size(); ++i) {
            if (const auto mean = series.rank(i).mean(metric)) {
                all.push_back(*mean);
            }
        }
        const double over = series.rank(rank).mean(metric).value_or(0) - median_of(std::move(all));
        if (over > most) {
            most = over;
            out = excess;
        }
    }
    return out;
}

}  // namespace

std::optional<double> SpikeWatch::add(double value) {
    if (!std::isfinite(value)) {
        return std::nullopt;
    }
    ++since_restart_;
    if (count_++ == 0) {
        mean_ = value;
        return std::nullopt;
    }
    // A series that stood still until now has no variance: its last digits are no spike.
    const double spread = std::max(std::sqrt(variance_), 1e-9 + 1e-6 * std::abs(mean_));
    const double z = (value - mean_) / spread;
    const bool known = count_ > kSpikeValues;
    // A short history is a plain mean: the first value does not weigh more than the others.
    const double alpha = std::max(kAlpha, 1.0 / static_cast<double>(count_));
    const double off = (known ? std::clamp(z, -limit_, limit_) : z) * spread;
    mean_ += alpha * off;
    variance_ = (1 - alpha) * (variance_ + alpha * off * off);
    return known && since_restart_ > kSpikeAfterRestart ? std::optional{z} : std::nullopt;
}

std::optional<std::pair<double, double>> DivergenceWatch::add(double value, double now) {
    if (!std::isfinite(value)) {
        return std::nullopt;
    }
    const auto minute = static_cast<std::int64_t>(now / 60);
    if (minutes_.empty() || minutes_.back().number < minute) {
        minutes_.push_back({minute, 0, 0});
    }
    minutes_.back().sum += value;
    ++minutes_.back().count;
    while (minutes_.front().number <= minute - kLowestMinutes) {
        minutes_.pop_front();
    }
    if (minutes_.front().number > minute - kMeanMinutes) {
        return std::nullopt;
    }
    double sum = 0;
    double count = 0;
    double lowest = std::numeric_limits<double>::infinity();
    for (const Minute& one : minutes_) {
        if (one.number > minute - kMeanMinutes) {
            sum += one.sum;
            count += static_cast<double>(one.count);
        } else {
            // Older ones only: the mean of a loss that falls fast is far above its newest minute.
            lowest = std::min(lowest, one.sum / static_cast<double>(one.count));
        }
    }
    return lowest > 0 ? std::optional{std::pair{sum / count, kDiverged * lowest}} : std::nullopt;
}

void AnomalyWatch::stragglers(const JobPicture& picture, Found& found) {
    const JobStats& stats = *picture.stats;
    const bool settled =
        generation_began_ >= 0 && stats.step.value_or(-1) >= generation_began_ + kSettlingSteps;
    if (!settled) {
        stragglers_ = StragglerWatch{score_};
        return;
    }
    std::map<std::int32_t, std::pair<std::size_t, std::size_t>> nodes;  // slow, all
    for (const std::int32_t node : picture.nodes) {
        ++nodes[node].second;
    }
    for (const std::size_t rank : stragglers_.update(stats, picture.now)) {
        Anomaly one;
        one.rank = static_cast<std::int32_t>(rank);
        one.step = stats.step.value_or(-1);
        one.value = stats.straggler_score[rank];
        one.limit = score_;
        const auto known = active_.find({AnomalyKind::straggler, one.rank});
        one.excess =
            known != active_.end() ? known->second.excess : excess_of(*picture.series, rank);
        found[{AnomalyKind::straggler, one.rank}] = one;
        if (rank < picture.nodes.size()) {
            ++nodes[picture.nodes[rank]].first;
        }
    }
    for (const auto& [node, count] : nodes) {
        if (count.first >= 2 && 2 * count.first >= count.second) {
            Anomaly one;
            one.kind = AnomalyKind::slow_node;
            one.node = node;
            one.step = stats.step.value_or(-1);
            one.value = static_cast<double>(count.first) / static_cast<double>(count.second);
            one.limit = 0.5;
            found[{AnomalyKind::slow_node, node}] = one;
        }
    }
}

// Once it has been seen it stays: values that were not finite are never taken back.
void AnomalyWatch::nonfinite(const JobPicture& picture, Found& found) {
    const auto before = active_.find({AnomalyKind::nonfinite, -1});
    if (before != active_.end()) {
        found.insert(*before);
        return;
    }
    if (picture.stats->nonfinite_loss + picture.stats->nonfinite_grad_norm == 0) {
        return;
    }
    std::optional<Nonfinite> first;
    std::int32_t rank = -1;
    for (std::size_t i = 0; i < picture.series->world_size(); ++i) {
        for (const CoreMetric metric : {CoreMetric::loss, CoreMetric::grad_norm}) {
            const MetricColumn* column = picture.series->rank(i).column(index(metric));
            if (column == nullptr || column->nonfinite.empty()) {
                continue;
            }
            const Nonfinite& one = column->nonfinite.front();
            if (!first || std::pair{one.step, one.time} < std::pair{first->step, first->time}) {
                first = one;
                rank = static_cast<std::int32_t>(i);
            }
        }
    }
    if (first) {
        Anomaly one;
        one.kind = AnomalyKind::nonfinite;
        one.rank = rank;
        one.step = first->step;
        one.value = first->value;
        found[{AnomalyKind::nonfinite, -1}] = one;
    }
}

void AnomalyWatch::spike(AnomalyKind kind, SpikeWatch& watch, std::optional<double> value,
                         double limit, std::int64_t step, Found& found) {
    const Key key{kind, -1};
    const auto before = active_.find(key);
    const auto z = value ? watch.add(*value) : std::nullopt;
    if (z && *z > limit) {
        calm_[kind] = 0;
        Anomaly one;
        one.kind = kind;
        one.step = step;
        one.value = *z;
        one.limit = limit;
        found[key] = before != active_.end() ? before->second : one;
    } else if (before != active_.end() && (!z || *z > limit / 2 || ++calm_[kind] < kCalm)) {
        found.insert(*before);
    }
}

void AnomalyWatch::losses(const JobPicture& picture, Found& found) {
    const JobStats& stats = *picture.stats;
    const std::int64_t step = stats.step.value_or(-1);
    if (step < 0 || step == last_step_) {
        for (const AnomalyKind kind :
             {AnomalyKind::loss_spike, AnomalyKind::grad_norm_spike, AnomalyKind::divergence}) {
            if (const auto before = active_.find({kind, -1}); before != active_.end()) {
                found.insert(*before);
            }
        }
        return;
    }
    last_step_ = step;
    const auto loss = stats.loss ? std::optional{stats.loss->mean} : std::nullopt;
    spike(AnomalyKind::loss_spike, loss_, loss, 6, step, found);
    spike(AnomalyKind::grad_norm_spike, grad_norm_, stats.grad_norm, 8, step, found);
    if (!loss) {
        return;
    }
    const auto mean = divergence_.add(*loss, picture.now);
    if (mean && mean->first > mean->second) {
        Anomaly one;
        one.kind = AnomalyKind::divergence;
        one.step = step;
        one.value = mean->first;
        one.limit = mean->second;
        found[{AnomalyKind::divergence, -1}] = one;
    }
}

void AnomalyWatch::waiting(const JobPicture& picture, Found& found) {
    const double ratio = picture.stats->data_wait_ratio.value_or(0);
    if (ratio <= kStarved) {
        starved_since_.reset();
        return;
    }
    starved_since_ = starved_since_.value_or(picture.now);
    if (picture.now - *starved_since_ >= kStarvedSeconds) {
        Anomaly one;
        one.kind = AnomalyKind::data_starvation;
        one.step = picture.stats->step.value_or(-1);
        one.value = ratio;
        one.limit = kStarved;
        found[{AnomalyKind::data_starvation, -1}] = one;
    }
}

void AnomalyWatch::silent(const JobPicture& picture, Found& found) const {
    const JobSeries& series = *picture.series;
    std::size_t known = 0;
    std::vector<std::size_t> quiet;
    for (std::size_t i = 0; i < series.world_size(); ++i) {
        if (!series.rank(i).empty()) {
            ++known;
            if (!series.reporting(i, picture.now)) {
                quiet.push_back(i);
            }
        }
    }
    // All of them silent is a pause or a hang, and no rank's fault.
    if (2 * quiet.size() > known) {
        return;
    }
    for (const std::size_t rank : quiet) {
        Anomaly one;
        one.kind = AnomalyKind::silent_rank;
        one.rank = static_cast<std::int32_t>(rank);
        one.step = series.rank(rank).last_step();
        one.value = series.report_age(rank, picture.now).value_or(0);
        one.limit = std::max(3 * series.rank(rank).interval().value_or(0), 30.0);
        found[{AnomalyKind::silent_rank, one.rank}] = one;
    }
}

std::vector<Anomaly> AnomalyWatch::update(const JobPicture& picture) {
    const auto& generations = picture.series->generations();
    if (generations.size() != generations_) {
        generations_ = generations.size();
        loss_.restarted();
        grad_norm_.restarted();
        starved_since_.reset();
        stragglers_ = StragglerWatch{score_};
    }
    generation_began_ = generations.empty() ? -1 : generations.back().first_step;
    Found found;
    nonfinite(picture, found);
    if (picture.training) {
        stragglers(picture, found);
        losses(picture, found);
        waiting(picture, found);
        silent(picture, found);
    } else {
        // A pause ends nothing and begins nothing.
        starved_since_.reset();
        found.insert(active_.begin(), active_.end());
    }
    std::vector<Anomaly> changes;
    for (const auto& [key, one] : found) {
        if (active_.count(key) == 0) {
            changes.push_back(one);
        }
    }
    for (const auto& [key, one] : active_) {
        if (found.count(key) == 0) {
            changes.push_back(one);
            changes.back().over = true;
        }
    }
    active_ = std::move(found);
    return changes;
}

}  // namespace lockstep::telemetry
