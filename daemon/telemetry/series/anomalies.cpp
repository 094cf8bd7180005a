// size: the detection rules, one after the other
#include "daemon/telemetry/series/anomalies.hpp"

#include "daemon/telemetry/series/order_statistics.hpp"
#include "daemon/telemetry/telemetry_limits.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr double kAlpha = 0.02;
constexpr double kLossZ = 6;
constexpr double kGradNormZ = 8;
// Of the mean: a run without noise would call every wobble a spike.
constexpr double kLeastDeviation = 0.01;
constexpr std::int64_t kStepsBack = 8;  // of which the loss is looked up at a tick
constexpr std::int64_t kMinutes = 360;
constexpr std::int64_t kDivergingMinutes = 10;
constexpr double kDivergence = 0.5;  // of the lowest, above it
// A mean of fewer values is mostly their noise: where steps take long its minutes are more.
constexpr std::uint64_t kDivergingValues = 10;
// Above the lowest of up to 360 means, which noise alone puts three of their deviations down.
constexpr double kDivergenceZ = 6;
constexpr double kStarvedRatio = 0.15;
constexpr double kTraining = 1;  // of op "phase": init, train, eval, checkpoint

std::string number(double value) {
    std::array<char, 32> text{};
    const int size = std::snprintf(text.data(), text.size(), "%.3g", value);
    return {text.data(), static_cast<std::size_t>(std::max(size, 0))};
}

// It says that it does something else than train.
bool trains(const JobSeries& job, const RankSeries& rank) {
    const auto phase = job.metric("phase_code");
    const auto code = phase ? rank.latest(*phase) : std::nullopt;
    return !code || *code <= kTraining;
}

bool gone(const AnomalyWatch::Facts& facts, std::size_t rank) {
    return facts.exited != nullptr && rank < facts.exited->size() && (*facts.exited)[rank];
}

// What a step is made of, and how long each part takes most ranks: a walk over all, once a look.
class Parts {
  public:
    explicit Parts(const JobSeries& job) : job_(job) {
        for (std::size_t part = 0; part < kParts.size(); ++part) {
            const auto means = job.newest().mean(kParts[part].first);
            std::vector<double> all;
            all.reserve(means.size());
            std::copy_if(means.begin(), means.end(), std::back_inserter(all),
                         [](double mean) { return std::isfinite(mean); });
            const std::size_t middle = all.size() / 2;
            medians_[part] = all.empty() ? 0 : OrderStatistics{std::move(all)}.at(middle);
        }
    }
    // Which part of the rank's step is most above that of the others.
    std::string_view largest_excess(std::size_t rank) const {
        std::string_view most = kParts[0].second;
        double excess = 0;
        for (std::size_t part = 0; part < kParts.size(); ++part) {
            const auto own = job_.rank(rank).mean(kParts[part].first);
            if (own && *own - medians_[part] > excess) {
                excess = *own - medians_[part];
                most = kParts[part].second;
            }
        }
        return most;
    }

  private:
    static constexpr std::array<std::pair<CoreMetric, std::string_view>, 3> kParts{
        {{CoreMetric::busy_seconds, "computing"},
         {CoreMetric::comm_wait_seconds, "waiting for other ranks"},
         {CoreMetric::data_wait_seconds, "waiting for data"}}};
    const JobSeries& job_;
    std::array<double, kParts.size()> medians_{};
};

// The first of a column's values that is new; `before`: how many were not finite when it was last
// looked at. Of those beyond what is kept only the number is known.
Nonfinite first_new(const MetricColumn& column, std::uint64_t before, std::int64_t last_step) {
    const std::uint64_t more = column.nonfinite_total - before;
    const std::size_t kept = column.nonfinite.size();
    if (kept < limits::kNonfiniteKept && more <= kept) {
        return column.nonfinite[kept - static_cast<std::size_t>(more)];
    }
    if (before < kept) {
        return column.nonfinite[static_cast<std::size_t>(before)];
    }
    return {last_step, 0, column.latest};
}

std::string_view words_of(double value) {
    if (std::isfinite(value)) {
        return "not finite";  // it was, before the newest
    }
    return std::isnan(value) ? "NaN" : value > 0 ? "infinite" : "minus infinite";
}

// The mean over the ranks at a step, as far as they have it.
std::optional<double> mean_loss_at(const JobSeries& job, std::int64_t step) {
    double sum = 0;
    std::size_t count = 0;
    for (const double loss : job.recent().losses_at(step)) {
        if (std::isfinite(loss)) {
            sum += loss;
            ++count;
        }
    }
    return count > 0 ? std::optional{sum / static_cast<double>(count)} : std::nullopt;
}

Anomaly spike(AnomalyKind kind, std::string_view what, std::int64_t step, double value, double z,
              double usual) {
    return {kind, -1, step,
            std::string{what} + " " + number(value) + " is " + number(z) +
                " standard deviations above its mean of " + number(usual)};
}

}  // namespace

void SpikeWatch::add(double value) {
    if (!std::isfinite(value)) {
        return;
    }
    if (count_ >= kWarmUp) {
        const double deviation =
            std::max({std::sqrt(variance_), kLeastDeviation * std::abs(mean_), 1e-12});
        z_ = (value - mean_) / deviation;
        // A spike must not hide the next one.
        value = std::clamp(value, mean_ - kLossZ * deviation, mean_ + kLossZ * deviation);
    }
    ++count_;
    const double alpha = std::max(kAlpha, 1.0 / static_cast<double>(count_));
    const double off = value - mean_;
    mean_ += alpha * off;
    variance_ = (1 - alpha) * (variance_ + alpha * off * off);
}

std::vector<Anomaly> AnomalyWatch::look(const JobSeries& job, const JobStats& stats,
                                        const Facts& facts) {
    Found found;
    look_for_stragglers(job, stats, facts, found);
    look_for_nonfinite(job, found);
    look_at_loss(job, stats, facts, found);
    look_at_grad_norm(stats, found);
    look_for_starvation(stats, facts.now, found);
    look_for_silence(job, facts, found);
    return found;
}

void AnomalyWatch::restart() {
    stragglers_.reset();
    straggler_count_.reset();
    slow_.clear();
    slow_nodes_.clear();
    nonfinite_told_.clear();
    // The loss goes on from a checkpoint; what it was before is still its past. The norm of the
    // first gradients is not.
    grad_norm_.reset();
    grad_norm_step_ = -1;
    starved_since_.reset();
    starved_told_ = false;
    silent_.clear();
}

void AnomalyWatch::resume(const JobSeries& job) {
    nonfinite_seen_.assign(job.world_size(), 0);
    nonfinite_of_.clear();
    for (std::size_t i = 0; i < job.world_size(); ++i) {
        nonfinite_seen_[i] = job.rank(i).nonfinite();
        for (std::size_t metric = 0; metric < job.metrics().size(); ++metric) {
            const MetricColumn* column = job.rank(i).column(metric);
            if (column != nullptr && column->nonfinite_total > 0) {
                nonfinite_of_[{i, metric}] = column->nonfinite_total;
                nonfinite_told_.insert(job.metrics()[metric]);
            }
        }
    }
}

void AnomalyWatch::look_for_stragglers(const JobSeries& job, const JobStats& stats,
                                       const Facts& facts, Found& found) {
    if (stats.straggler_score.empty()) {
        straggler_count_.reset();
        return;
    }
    std::vector<std::size_t> slow = stragglers_.update(job, stats, facts.now);
    std::erase_if(
        slow, [&](std::size_t rank) { return gone(facts, rank) || !trains(job, job.rank(rank)); });
    straggler_count_ = slow.size();
    std::map<std::size_t, std::size_t> by_node;
    for (const std::size_t rank : slow) {
        ++by_node[rank / facts.ranks_per_node];
    }
    std::erase_if(slow_nodes_, [&](std::size_t node) { return !by_node.contains(node); });
    std::erase_if(slow_, [&](std::int32_t rank) {
        return std::find(slow.begin(), slow.end(), static_cast<std::size_t>(rank)) == slow.end();
    });
    for (const auto& [node, count] : by_node) {
        if (facts.ranks_per_node > 1 && 2 * count >= facts.ranks_per_node &&
            slow_nodes_.insert(node).second) {
            found.push_back(
                {AnomalyKind::slow_node, static_cast<std::int32_t>(node * facts.ranks_per_node),
                 stats.step.value_or(-1),
                 std::to_string(count) + " of the " + std::to_string(facts.ranks_per_node) +
                     " ranks of this node are slow"});
        }
    }
    std::optional<Parts> parts;
    std::size_t told = 0;
    for (const std::size_t rank : slow) {
        const auto id = static_cast<std::int32_t>(rank);
        if (slow_nodes_.contains(rank / facts.ranks_per_node)) {
            slow_.insert(id);  // reported with its node
            continue;
        }
        if (told == limits::kAnomalyRanksTold || !slow_.insert(id).second) {
            continue;
        }
        ++told;
        if (!parts) {
            parts.emplace(job);
        }
        const double busy = job.rank(rank).mean(CoreMetric::busy_seconds).value_or(0);
        found.push_back({AnomalyKind::straggler, id, stats.step.value_or(-1),
                         "busy " + number(busy) + " s per step, the median is " +
                             number(busy * stats.straggler_score[rank]) + " s (score " +
                             number(stats.straggler_score[rank]) + "); most of it " +
                             std::string{parts->largest_excess(rank)}});
    }
}

void AnomalyWatch::look_for_nonfinite(const JobSeries& job, Found& found) {
    nonfinite_seen_.resize(job.world_size());
    const auto counts = job.newest().nonfinite();
    std::map<std::string, Anomaly> first;  // by metric
    for (std::size_t i = 0; job.newest().any_nonfinite() && i < counts.size(); ++i) {
        if (counts[i] == nonfinite_seen_[i]) {
            continue;
        }
        const RankSeries& rank = job.rank(i);
        nonfinite_seen_[i] = counts[i];
        for (std::size_t metric = 0; metric < job.metrics().size(); ++metric) {
            const MetricColumn* column = rank.column(metric);
            const std::string& name = job.metrics()[metric];
            if (column == nullptr || column->nonfinite_total == 0) {
                continue;
            }
            const std::uint64_t before =
                std::exchange(nonfinite_of_[{i, metric}], column->nonfinite_total);
            if (before == column->nonfinite_total || nonfinite_told_.contains(name)) {
                continue;
            }
            const Nonfinite at = first_new(*column, before, rank.last_step());
            const auto known = first.find(name);
            if (known == first.end() || at.step < known->second.step) {
                first[name] = {AnomalyKind::nonfinite, static_cast<std::int32_t>(i), at.step,
                               name + " is " + std::string{words_of(at.value)}, name};
            }
        }
    }
    for (auto& [name, anomaly] : first) {
        nonfinite_told_.insert(name);
        found.push_back(std::move(anomaly));
    }
}

void AnomalyWatch::look_at_loss(const JobSeries& job, const JobStats& stats, const Facts& facts,
                                Found& found) {
    if (!stats.step || !stats.loss || *stats.step == loss_step_) {
        return;
    }
    if (*stats.step < loss_step_) {
        loss_.reset();  // back to a checkpoint: its past is not the one that was seen
        loss_is_high_ = false;
        minutes_.clear();
        newest_loss_.reset();
        diverges_ = false;
        loss_step_ = *stats.step - 1;
    }
    for (std::int64_t step = std::max(loss_step_ + 1, *stats.step - kStepsBack + 1);
         step <= *stats.step; ++step) {
        const auto loss = mean_loss_at(job, step);
        if (!loss) {
            continue;
        }
        const double usual = loss_.mean();
        loss_.add(*loss);
        const bool high = loss_.z().value_or(0) > kLossZ;
        if (high && !loss_is_high_) {
            // NOLINTNEXTLINE(bugprone-unchecked-optional-access): the caller has looked
            found.push_back(spike(AnomalyKind::loss_spike, "loss", step, *loss, *loss_.z(), usual));
        }
        loss_is_high_ = high;
    }
    loss_step_ = *stats.step;
    look_for_divergence(stats, facts.now, found);
}

void AnomalyWatch::look_at_grad_norm(const JobStats& stats, Found& found) {
    if (!stats.grad_norm || !stats.step || *stats.step == grad_norm_step_) {
        return;
    }
    grad_norm_step_ = *stats.step;
    const double usual = grad_norm_.mean();
    grad_norm_.add(*stats.grad_norm);
    const bool high = grad_norm_.z().value_or(0) > kGradNormZ;
    if (high && !grad_norm_is_high_) {
        found.push_back(
            spike(AnomalyKind::grad_norm_spike, "gradient norm", *stats.step,
                  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): the caller has looked
                  *stats.grad_norm, *grad_norm_.z(), usual));
    }
    grad_norm_is_high_ = high;
}

void AnomalyWatch::take_minute(double loss, std::int64_t minute) {
    if (minutes_.empty() || minutes_.back().number != minute) {
        Minute next;
        next.number = minute;
        minutes_.push_back(next);
    }
    const double change = newest_loss_ ? loss - *newest_loss_ : 0;
    minutes_.back().all.add(loss, change * change);
    newest_loss_ = loss;
    while (minutes_.front().number <= minute - kMinutes) {
        minutes_.pop_front();
    }
}

void AnomalyWatch::look_for_divergence(const JobStats& stats, double now, Found& found) {
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): the caller has looked
    if (!std::isfinite(stats.loss->mean)) {
        return;
    }
    const auto minute = static_cast<std::int64_t>(now / 60);
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): the caller has looked
    take_minute(stats.loss->mean, minute);
    Values last;  // of the last 10 minutes, or more where steps take long
    auto since = minutes_.end();
    while (since != minutes_.begin() &&
           ((since - 1)->number > minute - kDivergingMinutes || last.count < kDivergingValues)) {
        --since;
        last.add(since->all);
    }
    Values before;  // all of them
    Values part;    // the next minutes that are enough
    std::optional<Values> lowest;
    for (auto at = minutes_.begin(); at != since; ++at) {
        before.add(at->all);
        part.add(at->all);
        if (part.count >= kDivergingValues) {
            if (!lowest || part.mean() < lowest->mean()) {
                lowest = part;
            }
            part = Values{};
        }
    }
    if (!lowest) {
        return;
    }
    const double excess = last.mean() - lowest->mean();
    // The noise of before: a loss that diverges is noisier, and must not hide itself.
    const double deviation = before.noise() * std::sqrt(1 / static_cast<double>(last.count) +
                                                        1 / static_cast<double>(lowest->count));
    // Of a loss below zero half of its size, too.
    const bool high =
        excess > kDivergence * std::abs(lowest->mean()) && excess > kDivergenceZ * deviation;
    if (high && !diverges_) {
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): the caller has looked
        found.push_back({AnomalyKind::divergence, -1, *stats.step,
                         "the mean loss of " + std::to_string(minute - since->number + 1) +
                             " minutes is " + number(last.mean()) +
                             ", the lowest mean before was " + number(lowest->mean())});
    }
    diverges_ = high;
}

void AnomalyWatch::look_for_starvation(const JobStats& stats, double now, Found& found) {
    if (stats.ranks_reporting == 0 || stats.data_wait_ratio.value_or(0) <= kStarvedRatio) {
        starved_since_.reset();
        starved_told_ = false;
        return;
    }
    starved_since_ = starved_since_.value_or(now);
    if (!starved_told_ && now - *starved_since_ >= limits::kStarvedSeconds) {
        starved_told_ = true;
        found.push_back(
            {AnomalyKind::data_starved, -1, stats.step.value_or(-1),
             // NOLINTNEXTLINE(bugprone-unchecked-optional-access): the caller has looked
             number(100 * *stats.data_wait_ratio) +
                 " % of the step time is spent waiting for data"});
    }
}

void AnomalyWatch::look_for_silence(const JobSeries& job, const Facts& facts, Found& found) {
    std::vector<std::size_t> silent;
    std::size_t others = 0;
    const NewestReports& newest = job.newest();
    for (std::size_t i = 0; i < job.present(); ++i) {
        // One that has ended is newest's for a while more.
        others += newest.reporting(i, facts.now) && !gone(facts, i) ? 1U : 0U;
        if (newest.ever(i) && !newest.reporting(i, facts.now) &&
            newest.last_received()[i] >= facts.since && !gone(facts, i) &&
            trains(job, job.rank(i))) {
            silent.push_back(i);
        }
    }
    std::erase_if(silent_, [&](std::int32_t rank) {
        return std::find(silent.begin(), silent.end(), static_cast<std::size_t>(rank)) ==
               silent.end();
    });
    if (silent.empty() || others <= silent.size()) {
        return;  // all of them: a checkpoint, an evaluation, or a hang, which is another's to tell
    }
    std::size_t told = 0;
    for (const std::size_t i : silent) {
        if (told == limits::kAnomalyRanksTold) {
            break;
        }
        if (silent_.insert(static_cast<std::int32_t>(i)).second) {
            ++told;
            const double age = job.report_age(i, facts.now).value_or(0);
            found.push_back({AnomalyKind::rank_silent, static_cast<std::int32_t>(i),
                             job.rank(i).last_step(),
                             "no report for " + number(std::floor(age)) + " s, " +
                                 std::to_string(others) + " other ranks report"});
        }
    }
}

}  // namespace lockstep::telemetry
