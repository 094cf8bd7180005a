#include "daemon/telemetry/series/job_stats.hpp"

#include "daemon/telemetry/series/order_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr double kNoLoss = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::max();

// Nearest rank: the smallest value that at least the fraction `q` of the `count` values do not
// exceed.
double quantile(OrderStatistics& order, std::size_t count, double q) {
    const double place = std::ceil(q * static_cast<double>(count));
    return order.at(static_cast<std::size_t>(std::max(place, 1.0)) - 1);
}

std::optional<Spread> spread(std::vector<double> values) {
    if (values.empty()) {
        return std::nullopt;
    }
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    Spread result;
    result.mean = std::isfinite(sum) ? sum / static_cast<double>(values.size()) : kNan;
    if (!std::isfinite(sum)) {
        std::erase_if(values, [](double v) { return !std::isfinite(v); });
    }
    if (values.empty()) {
        return Spread{kNan, kNan, kNan, kNan, kNan};
    }
    const std::size_t count = values.size();
    OrderStatistics order{std::move(values)};
    result.min = order.lowest();
    result.max = order.highest();
    result.p50 = quantile(order, count, 0.5);
    result.p99 = quantile(order, count, 0.99);
    return result;
}

using Ranks = std::vector<std::uint32_t>;

Ranks current_ranks(const NewestReports& newest, std::size_t world, double now,
                    std::size_t& reporting) {
    Ranks young;
    young.reserve(world);
    for (std::uint32_t i = 0; i < world; ++i) {
        if (newest.reporting(i, now)) {
            young.push_back(i);
        }
    }
    reporting = young.size();
    if (young.empty()) {
        for (std::uint32_t i = 0; i < world; ++i) {
            if (newest.ever(i)) {
                young.push_back(i);
            }
        }
    }
    return young;
}

void how_far(const JobSeries& job, const Ranks& ranks, JobStats& stats) {
    const auto steps = job.newest().last_step();
    const auto times = job.newest().last_time();
    std::int64_t lowest = kNoStep;
    double newest = 0;
    for (const std::uint32_t i : ranks) {
        if (steps[i] >= 0) {
            lowest = std::min(lowest, steps[i]);
            newest = std::max(newest, times[i]);
        }
    }
    if (lowest != kNoStep) {
        stats.step = lowest;
        stats.last_step_time = newest;
    }
}

std::optional<double> sum_of(std::span<const double> column) {
    double sum = 0;
    bool any = false;
    for (const double value : column) {
        const bool there = !is_absent(value);
        sum += there ? value : 0;
        any = any || there;
    }
    return any ? std::optional{sum} : std::nullopt;
}

// The largest of those in the range, both ends included; absent and NaN are not.
std::optional<double> largest_of(std::span<const double> column, double low, double high) {
    double most = low;
    bool any = false;
    for (const double value : column) {
        const bool in = value >= low && value <= high;
        most = in && value > most ? value : most;
        any = any || in;
    }
    return any ? std::optional{most} : std::nullopt;
}

std::optional<double> plus(std::optional<double> a, std::optional<double> b) {
    return a && b ? std::optional{*a + *b} : (a ? a : b);
}

// What has to be added to `part` for `all`; rounded so that it never becomes less than that.
std::optional<double> rest_of(std::optional<double> all, std::optional<double> part) {
    if (!all || !part) {
        return all;
    }
    double rest = std::max(*all - *part, 0.0);  // of two infinities none
    while (rest + *part < *all) {
        rest = std::nextafter(rest, std::numeric_limits<double>::infinity());
    }
    return rest;
}

// Ranks that begin anew at a restart are behind those that go on by what the highest of these had
// then: it would not be seen what they add until they have as much.
std::optional<double> most_on_checkpoints(const JobSeries& job, std::span<const double> column) {
    const std::size_t kept = std::min(job.restored().ranks, column.size());
    const auto low = largest_of(column.first(kept), -kNoLoss, kNoLoss);
    const auto high = largest_of(column.subspan(kept), -kNoLoss, kNoLoss);
    const double ahead = high ? std::max(*high, 0.0) + job.restored().checkpoint_seconds : 0.0;
    return low || high ? std::optional{std::max(std::max(low.value_or(0), 0.0), ahead)}
                       : std::nullopt;
}

// What the first so many ranks have counted.
JobTotals own_totals(const JobSeries& job, std::size_t ranks) {
    const NewestReports& newest = job.newest();
    const auto column = [&](CoreMetric metric) {
        const auto all = newest.total(metric);
        return all.first(std::min(ranks, all.size()));
    };
    JobTotals out;
    out.samples = sum_of(column(CoreMetric::samples));
    out.tokens = sum_of(column(CoreMetric::tokens));
    out.checkpoint_seconds = most_on_checkpoints(job, column(CoreMetric::checkpoint_seconds));
    for (std::size_t i = 0; newest.any_nonfinite() && i < ranks; ++i) {
        const RankSeries& rank = job.rank(i);
        const std::uint64_t loss = rank.nonfinite(CoreMetric::loss);
        const std::uint64_t norm = rank.nonfinite(CoreMetric::grad_norm);
        out.nonfinite_loss += loss;
        out.nonfinite_grad_norm += norm;
        out.nonfinite_other += rank.nonfinite() - loss - norm;
    }
    return out;
}

void totals(const JobSeries& job, JobStats& stats) {
    const JobTotals all = job_totals(job);
    stats.samples_total = all.samples;
    stats.tokens_total = all.tokens;
    stats.checkpoint_seconds = all.checkpoint_seconds;
    stats.nonfinite_loss = all.nonfinite_loss;
    stats.nonfinite_grad_norm = all.nonfinite_grad_norm;
    stats.nonfinite_other = all.nonfinite_other;
    const auto steps = largest_of(job.newest().latest(CoreMetric::total_steps), 0, 9e18);
    stats.total_steps = steps ? std::optional{static_cast<std::int64_t>(*steps)} : std::nullopt;
}

// Σ part / Σ step over the ranks that report both.
std::optional<double> share(const NewestReports& newest, const Ranks& ranks, CoreMetric part) {
    const auto some = newest.mean(part);
    const auto step = newest.mean(CoreMetric::step_seconds);
    double parts = 0;
    double steps = 0;
    for (const std::uint32_t i : ranks) {
        if (some.empty() || step.empty()) {
            break;
        }
        if (!is_absent(some[i]) && !is_absent(step[i])) {
            parts += some[i];
            steps += step[i];
        }
    }
    return steps > 0 ? std::optional{parts / steps} : std::nullopt;
}

// Of the lowest of the ranks that has one.
std::optional<double> first_latest(const NewestReports& newest, const Ranks& ranks,
                                   CoreMetric metric) {
    const auto latest = newest.latest(metric);
    if (latest.empty()) {
        return std::nullopt;
    }
    const auto found = std::find_if(ranks.begin(), ranks.end(),
                                    [&](std::uint32_t i) { return !is_absent(latest[i]); });
    return found == ranks.end() ? std::nullopt : std::optional{latest[*found]};
}

std::optional<double> mean_latest(const NewestReports& newest, const Ranks& ranks,
                                  CoreMetric metric) {
    const auto latest = newest.latest(metric);
    double sum = 0;
    double count = 0;
    for (const std::uint32_t i : ranks) {
        if (!latest.empty() && std::isfinite(latest[i])) {  // kAbsent is not
            sum += latest[i];
            ++count;
        }
    }
    return count > 0 ? std::optional{sum / count} : std::nullopt;
}

void rates(const NewestReports& newest, const Ranks& ranks, JobStats& stats) {
    const auto samples = newest.mean(CoreMetric::samples);
    const auto interval = newest.interval();
    double rate = 0;
    bool any = false;
    for (const std::uint32_t i : ranks) {
        if (samples.empty() || interval.empty()) {
            break;
        }
        if (!is_absent(samples[i]) && interval[i] > 0) {
            rate += samples[i] / interval[i];
            any = true;
        }
    }
    stats.samples_per_second = any ? std::optional{rate} : std::nullopt;
    stats.grad_norm = first_latest(newest, ranks, CoreMetric::grad_norm);
    stats.learning_rate = first_latest(newest, ranks, CoreMetric::learning_rate);
    stats.data_wait_ratio = share(newest, ranks, CoreMetric::data_wait_seconds);
    stats.comm_exposed_ratio = share(newest, ranks, CoreMetric::comm_wait_seconds);
    stats.mfu = mean_latest(newest, ranks, CoreMetric::mfu);
}

void stragglers(const JobSeries& job, const Ranks& ranks, JobStats& stats) {
    const auto means = job.newest().mean(CoreMetric::busy_seconds);
    if (means.empty()) {
        return;
    }
    Ranks who;
    std::vector<double> busy;
    who.reserve(ranks.size());
    busy.reserve(ranks.size());
    for (const std::uint32_t i : ranks) {
        if (means[i] > 0) {  // absent is not
            who.push_back(i);
            busy.push_back(means[i]);
        }
    }
    if (busy.size() < 2) {
        return;
    }
    const double middle = OrderStatistics{std::move(busy)}.median();
    std::vector<double> deviations(who.size());
    std::transform(who.begin(), who.end(), deviations.begin(),
                   [&](std::uint32_t i) { return std::abs(means[i] - middle); });
    const double mad = std::max(OrderStatistics{std::move(deviations)}.median(), 0.01 * middle);
    stats.straggler_score.assign(job.world_size(), kAbsent);
    stats.straggler_z.assign(job.world_size(), kAbsent);
    double lowest = 2;
    for (const std::uint32_t i : who) {
        const double score = std::clamp(middle / means[i], 0.0, 1.0);
        stats.straggler_score[i] = score;
        stats.straggler_z[i] = 0.6745 * (means[i] - middle) / mad;
        if (score < lowest) {
            lowest = score;
            stats.slowest_rank = i;
        }
    }
}

}  // namespace

// Sums over everybody who ever reported: counters must not fall when a rank goes quiet.
JobTotals job_totals(const JobSeries& job) {
    const JobTotals& earlier = job.restored().earlier;
    JobTotals all = own_totals(job, job.world_size());
    all.samples = plus(earlier.samples, all.samples);
    all.tokens = plus(earlier.tokens, all.tokens);
    all.checkpoint_seconds = plus(earlier.checkpoint_seconds, all.checkpoint_seconds);
    all.nonfinite_loss += earlier.nonfinite_loss;
    all.nonfinite_grad_norm += earlier.nonfinite_grad_norm;
    all.nonfinite_other += earlier.nonfinite_other;
    return all;
}

JobTotals totals_beyond(const JobSeries& job, std::size_t ranks) {
    JobTotals out = job_totals(job);
    const JobTotals own = own_totals(job, std::min(ranks, job.world_size()));
    out.samples = rest_of(out.samples, own.samples);
    out.tokens = rest_of(out.tokens, own.tokens);
    out.checkpoint_seconds = rest_of(out.checkpoint_seconds, own.checkpoint_seconds);
    out.nonfinite_loss -= own.nonfinite_loss;
    out.nonfinite_grad_norm -= own.nonfinite_grad_norm;
    out.nonfinite_other -= own.nonfinite_other;
    return out;
}

JobStats compute_job_stats(const JobSeries& job, double now) {
    JobStats stats;
    const Ranks ranks = current_ranks(job.newest(), job.present(), now, stats.ranks_reporting);
    how_far(job, ranks, stats);
    if (stats.step) {
        stats.loss = spread(job.recent().losses_at(ranks, *stats.step));
        stats.step_seconds = spread(job.recent().step_seconds_at(ranks, *stats.step));
    }
    totals(job, stats);
    rates(job.newest(), ranks, stats);
    stragglers(job, ranks, stats);
    return stats;
}

JobStats past_job_stats(const JobSeries& job) {
    JobStats stats;
    constexpr double kAllSilent = std::numeric_limits<double>::infinity();
    const Ranks ranks =
        current_ranks(job.newest(), job.present(), kAllSilent, stats.ranks_reporting);
    how_far(job, ranks, stats);
    totals(job, stats);
    return stats;
}

std::vector<std::size_t> StragglerWatch::update(const JobSeries& job, const JobStats& stats,
                                                double now) {
    std::vector<std::size_t> slow;
    since_.resize(stats.straggler_score.size());
    const auto busy = job.newest().latest(CoreMetric::busy_seconds);
    std::vector<double> newest;
    if (!busy.empty()) {
        newest.reserve(since_.size());
        for (std::size_t i = 0; i < since_.size(); ++i) {
            if (std::isfinite(busy[i]) && !is_absent(stats.straggler_score[i])) {
                newest.push_back(busy[i]);
            }
        }
    }
    const double usual = newest.empty() ? 0 : OrderStatistics{std::move(newest)}.median();
    for (std::size_t i = 0; i < since_.size(); ++i) {
        Since& since = since_[i];
        const double score = stats.straggler_score[i];  // absent is not below the threshold
        const bool is_slow = score < threshold_ && stats.straggler_z[i] > 6 && stats.step &&
                             !busy.empty() && busy[i] * threshold_ > usual;
        if (!is_slow) {
            since = {};
        } else if (since.step < 0) {
            since = {*stats.step, now};
        } else if (*stats.step - since.step >= 20 && now - since.time >= 30) {
            slow.push_back(i);
        }
    }
    return slow;
}

}  // namespace lockstep::telemetry
