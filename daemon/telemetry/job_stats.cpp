#include "daemon/telemetry/job_stats.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::telemetry {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) {
        return *middle;
    }
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Nearest rank: the smallest value that at least the fraction `q` of the values do not exceed.
double quantile(const std::vector<double>& sorted, double q) {
    const double place = std::ceil(q * static_cast<double>(sorted.size()));
    return sorted[static_cast<std::size_t>(std::max(place, 1.0)) - 1];
}

std::optional<Spread> spread(std::vector<double> values) {
    if (values.empty()) {
        return std::nullopt;
    }
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    Spread result;
    result.mean = std::isfinite(sum) ? sum / static_cast<double>(values.size()) : kNan;
    std::erase_if(values, [](double v) { return !std::isfinite(v); });
    if (values.empty()) {
        return Spread{kNan, kNan, kNan, kNan, kNan};
    }
    std::sort(values.begin(), values.end());
    result.min = values.front();
    result.p50 = quantile(values, 0.5);
    result.p99 = quantile(values, 0.99);
    result.max = values.back();
    return result;
}

std::vector<std::size_t> current_ranks(const JobSeries& job, double now, std::size_t& reporting) {
    std::vector<std::size_t> young;
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < job.world_size(); ++i) {
        if (!job.rank(i).empty()) {
            all.push_back(i);
            if (job.reporting(i, now)) {
                young.push_back(i);
            }
        }
    }
    reporting = young.size();
    return young.empty() ? all : young;
}

void common_step(const JobSeries& job, const std::vector<std::size_t>& ranks, JobStats& stats) {
    for (const std::size_t i : ranks) {
        const RankSeries& rank = job.rank(i);
        if (rank.last_step() < 0) {
            continue;
        }
        stats.step = std::min(stats.step.value_or(rank.last_step()), rank.last_step());
        stats.last_step_time = std::max(stats.last_step_time.value_or(0), rank.last_time());
    }
    if (!stats.step) {
        return;
    }
    std::vector<double> losses;
    std::vector<double> step_times;
    for (const std::size_t i : ranks) {
        if (const auto loss = job.rank(i).loss_at(*stats.step)) {
            losses.push_back(*loss);
        }
        if (const auto seconds = job.rank(i).step_seconds_at(*stats.step)) {
            step_times.push_back(*seconds);
        }
    }
    stats.loss = spread(std::move(losses));
    stats.step_seconds = spread(std::move(step_times));
}

// Sums over everybody who ever reported: counters must not fall when a rank goes quiet.
void totals(const JobSeries& job, JobStats& stats) {
    for (std::size_t i = 0; i < job.world_size(); ++i) {
        const RankSeries& rank = job.rank(i);
        if (rank.empty()) {
            continue;
        }
        const auto add = [&](CoreMetric metric, std::optional<double>& sum) {
            if (const auto total = rank.total(metric)) {
                sum = sum.value_or(0) + *total;
            }
        };
        add(CoreMetric::samples, stats.samples_total);
        add(CoreMetric::tokens, stats.tokens_total);
        if (const auto spent = rank.total(CoreMetric::checkpoint_seconds)) {
            stats.checkpoint_seconds = std::max(stats.checkpoint_seconds.value_or(0), *spent);
        }
        const auto steps = rank.latest(CoreMetric::total_steps);
        if (steps && *steps >= 0 && *steps < 9e18) {
            const auto count = static_cast<std::int64_t>(*steps);
            stats.total_steps = std::max(stats.total_steps.value_or(count), count);
        }
        stats.nonfinite_loss += rank.nonfinite(CoreMetric::loss);
        stats.nonfinite_grad_norm += rank.nonfinite(CoreMetric::grad_norm);
        stats.nonfinite_other += rank.nonfinite() - rank.nonfinite(CoreMetric::loss) -
                                 rank.nonfinite(CoreMetric::grad_norm);
    }
}

// Σ part / Σ step over the ranks that report both.
std::optional<double> share(const JobSeries& job, const std::vector<std::size_t>& ranks,
                            CoreMetric part) {
    double parts = 0;
    double steps = 0;
    for (const std::size_t i : ranks) {
        const auto some = job.rank(i).mean(part);
        const auto step = job.rank(i).mean(CoreMetric::step_seconds);
        if (some && step) {
            parts += *some;
            steps += *step;
        }
    }
    return steps > 0 ? std::optional{parts / steps} : std::nullopt;
}

void rates(const JobSeries& job, const std::vector<std::size_t>& ranks, JobStats& stats) {
    for (const std::size_t i : ranks) {
        const RankSeries& rank = job.rank(i);
        const auto samples = rank.mean(CoreMetric::samples);
        const auto interval = rank.interval();
        if (samples && interval && *interval > 0) {
            stats.samples_per_second = stats.samples_per_second.value_or(0) + *samples / *interval;
        }
        if (!stats.grad_norm) {
            stats.grad_norm = rank.latest(CoreMetric::grad_norm);
        }
        if (!stats.learning_rate) {
            stats.learning_rate = rank.latest(CoreMetric::learning_rate);
        }
    }
    stats.data_wait_ratio = share(job, ranks, CoreMetric::data_wait_seconds);
    stats.comm_exposed_ratio = share(job, ranks, CoreMetric::comm_wait_seconds);
}

void stragglers(const JobSeries& job, const std::vector<std::size_t>& ranks, JobStats& stats) {
    std::vector<std::size_t> who;
    std::vector<double> busy;
    for (const std::size_t i : ranks) {
        if (const auto mean = job.rank(i).mean(CoreMetric::busy_seconds); mean && *mean > 0) {
            who.push_back(i);
            busy.push_back(*mean);
        }
    }
    if (busy.size() < 2) {
        return;
    }
    const double middle = median(busy);
    std::vector<double> deviations(busy.size());
    std::transform(busy.begin(), busy.end(), deviations.begin(),
                   [middle](double b) { return std::abs(b - middle); });
    const double mad = std::max(median(std::move(deviations)), 0.01 * middle);
    stats.straggler_score.assign(job.world_size(), kAbsent);
    stats.straggler_z.assign(job.world_size(), kAbsent);
    double lowest = 2;
    for (std::size_t i = 0; i < who.size(); ++i) {
        const double score = std::clamp(middle / busy[i], 0.0, 1.0);
        stats.straggler_score[who[i]] = score;
        stats.straggler_z[who[i]] = 0.6745 * (busy[i] - middle) / mad;
        if (score < lowest) {
            lowest = score;
            stats.slowest_rank = who[i];
        }
    }
}

}  // namespace

JobStats compute_job_stats(const JobSeries& job, double now) {
    JobStats stats;
    const auto ranks = current_ranks(job, now, stats.ranks_reporting);
    common_step(job, ranks, stats);
    totals(job, stats);
    rates(job, ranks, stats);
    stragglers(job, ranks, stats);
    return stats;
}

std::vector<std::size_t> StragglerWatch::update(const JobSeries& job, const JobStats& stats,
                                                double now) {
    std::vector<std::size_t> slow;
    since_.resize(stats.straggler_score.size());
    std::vector<double> newest;
    for (std::size_t i = 0; i < since_.size(); ++i) {
        if (const auto busy = job.rank(i).latest(CoreMetric::busy_seconds);
            busy && !is_absent(stats.straggler_score[i])) {
            newest.push_back(*busy);
        }
    }
    const double usual = newest.empty() ? 0 : median(std::move(newest));
    for (std::size_t i = 0; i < since_.size(); ++i) {
        const bool is_slow =
            !is_absent(stats.straggler_score[i]) && stats.straggler_score[i] < threshold_ &&
            stats.straggler_z[i] > 6 &&
            job.rank(i).latest(CoreMetric::busy_seconds).value_or(0) * threshold_ > usual &&
            stats.step;
        Since& since = since_[i];
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
