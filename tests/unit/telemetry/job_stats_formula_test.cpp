// The aggregates against the plain formulas of job_stats.hpp, rank by rank and by sorting, on runs
// made at random: ranks that fall behind, fall silent, start anew, and report what is not finite.
#include "daemon/telemetry/series/job_stats.hpp"
#include "tests/unit/telemetry/names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace lockstep::telemetry {
namespace {

struct StepReport {
    std::int64_t step = -1;
    double loss = kAbsent;
    double step_seconds = kAbsent;
};

// A job whose ranks report at random, and what each said lately.
class RandomRun {
  public:
    RandomRun(std::size_t ranks, std::uint64_t seed) : job(ranks), random_(seed), ranks_(ranks) {}

    void go_on(double now) {
        for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
            One& one = ranks_[rank];
            const std::uint64_t dice = random_() % 1000;
            if (rank % 10 == 9 && now > 1100) {
                continue;  // silent from then on
            }
            if (dice < 5) {
                ++one.generation;
                one.step = std::max<std::int64_t>(0, one.step - 7);
                one.reports.clear();
            } else if (dice < 100) {
                continue;  // late
            }
            report(rank, one, now);
        }
    }

    JobSeries job;
    std::optional<double> at(std::size_t rank, std::int64_t step,
                             double StepReport::* field) const {
        const auto& reports = ranks_[rank].reports;
        for (auto it = reports.rbegin(); it != reports.rend(); ++it) {
            if (it->step <= step && !is_absent((*it).*field)) {
                return (*it).*field;
            }
        }
        return std::nullopt;
    }

  private:
    struct One {
        std::uint32_t generation = 1;
        std::uint64_t seq = 0;
        std::int64_t step = 0;
        std::deque<StepReport> reports;
    };
    void report(std::uint32_t rank, One& one, double now) {
        std::normal_distribution<double> near{0.5, 0.02};
        Batch batch;
        batch.seq = ++one.seq;
        batch.generation = one.generation;
        batch.node_rank = rank;
        batch.add_row(rank, one.step, now);
        StepReport said{one.step, kAbsent, kAbsent};
        const auto set = [&](const char* name, double value) {
            if (random_() % 8 != 0) {
                batch.set(name, value);
                return value;
            }
            return kAbsent;
        };
        said.loss = set("loss", random_() % 40 == 0 ? kNan : 2 + near(random_));
        said.step_seconds = set("step_seconds", near(random_));
        set("busy_seconds", rank % 17 == 3 ? 1.5 : near(random_));
        set("comm_wait_seconds", 0.1 * near(random_));
        set("data_wait_seconds", 0.2 * near(random_));
        set("samples", 64);
        if (rank % 2 == 0) {
            set("grad_norm", near(random_));
            set("checkpoint_seconds", near(random_));
            set("total_steps", 100.0 + rank);
        }
        job.ingest(batch, 1, now);
        if (!is_absent(said.loss) || !is_absent(said.step_seconds)) {
            one.reports.push_back(said);
            if (one.reports.size() > limits::kRecentSteps) {
                one.reports.pop_front();
            }
        }
        ++one.step;
    }

    std::mt19937_64 random_;
    std::vector<One> ranks_;
};

std::optional<Spread> plain_spread(std::vector<double> values) {
    if (values.empty()) {
        return std::nullopt;
    }
    double sum = 0;
    for (const double value : values) {
        sum += value;
    }
    Spread out;
    out.mean = sum / static_cast<double>(values.size());
    std::erase_if(values, [](double value) { return !std::isfinite(value); });
    if (values.empty()) {
        return Spread{kNan, kNan, kNan, kNan, kNan};
    }
    std::sort(values.begin(), values.end());
    const auto nearest_rank = [&](double q) {
        return values[static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size()))) -
                      1];
    };
    out.min = values.front();
    out.max = values.back();
    out.p50 = nearest_rank(0.5);
    out.p99 = nearest_rank(0.99);
    return out;
}

void add_spreads_and_scores(const RandomRun& run, const std::vector<std::size_t>& ranks,
                            JobStats& out) {
    const JobSeries& job = run.job;
    std::vector<double> losses;
    std::vector<double> times;
    std::vector<double> busy;
    std::vector<std::size_t> who;
    for (const std::size_t i : ranks) {
        if (const auto loss = run.at(i, out.step.value_or(-1), &StepReport::loss)) {
            losses.push_back(*loss);
        }
        if (const auto seconds = run.at(i, out.step.value_or(-1), &StepReport::step_seconds)) {
            times.push_back(*seconds);
        }
        if (const auto mean = job.rank(i).mean(CoreMetric::busy_seconds); mean && *mean > 0) {
            busy.push_back(*mean);
            who.push_back(i);
        }
    }
    out.loss = plain_spread(losses);
    out.step_seconds = plain_spread(times);
    if (busy.size() < 2) {
        return;
    }
    const double middle = plain_median(busy);
    std::vector<double> off;
    for (const double b : busy) {
        off.push_back(std::abs(b - middle));
    }
    const double mad = std::max(plain_median(off), 0.01 * middle);
    out.straggler_score.assign(job.world_size(), kAbsent);
    out.straggler_z.assign(job.world_size(), kAbsent);
    for (std::size_t i = 0; i < who.size(); ++i) {
        out.straggler_score[who[i]] = std::clamp(middle / busy[i], 0.0, 1.0);
        out.straggler_z[who[i]] = 0.6745 * (busy[i] - middle) / mad;
    }
}

JobStats plain_stats(const RandomRun& run, double now) {
    const JobSeries& job = run.job;
    JobStats out;
    std::vector<std::size_t> ranks;
    std::vector<std::size_t> ever;
    for (std::size_t i = 0; i < job.world_size(); ++i) {
        const RankSeries& rank = job.rank(i);
        if (rank.empty()) {
            continue;
        }
        ever.push_back(i);
        if (now - rank.last_received() <= std::max(3 * rank.interval().value_or(0), 30.0)) {
            ranks.push_back(i);
        }
        const auto add = [&](CoreMetric metric, std::optional<double>& sum) {
            if (const auto total = rank.total(metric)) {
                sum = sum.value_or(0) + *total;
            }
        };
        add(CoreMetric::samples, out.samples_total);
        add(CoreMetric::tokens, out.tokens_total);
        if (const auto spent = rank.total(CoreMetric::checkpoint_seconds)) {
            out.checkpoint_seconds = std::max(out.checkpoint_seconds.value_or(0), *spent);
        }
        if (const auto steps = rank.latest(CoreMetric::total_steps)) {
            const auto count = static_cast<std::int64_t>(*steps);
            out.total_steps = std::max(out.total_steps.value_or(count), count);
        }
        out.nonfinite_loss += rank.nonfinite(CoreMetric::loss);
    }
    out.ranks_reporting = ranks.size();
    ranks = ranks.empty() ? ever : ranks;
    std::map<CoreMetric, std::pair<double, double>> shares;
    for (const std::size_t i : ranks) {
        const RankSeries& rank = job.rank(i);
        if (rank.last_step() >= 0) {
            out.step = std::min(out.step.value_or(rank.last_step()), rank.last_step());
            out.last_step_time = std::max(out.last_step_time.value_or(0), rank.last_time());
        }
        for (const auto part : {CoreMetric::data_wait_seconds, CoreMetric::comm_wait_seconds}) {
            const auto some = rank.mean(part);
            const auto step = rank.mean(CoreMetric::step_seconds);
            if (some && step) {
                shares[part].first += *some;
                shares[part].second += *step;
            }
        }
        const auto samples = rank.mean(CoreMetric::samples);
        const auto interval = rank.interval();
        if (samples && interval && *interval > 0) {
            out.samples_per_second = out.samples_per_second.value_or(0) + *samples / *interval;
        }
        if (!out.grad_norm) {
            out.grad_norm = rank.latest(CoreMetric::grad_norm);
        }
    }
    const auto ratio = [&](CoreMetric part) {
        const auto [some, step] = shares[part];
        return step > 0 ? std::optional{some / step} : std::nullopt;
    };
    out.data_wait_ratio = ratio(CoreMetric::data_wait_seconds);
    out.comm_exposed_ratio = ratio(CoreMetric::comm_wait_seconds);
    add_spreads_and_scores(run, ranks, out);
    return out;
}

// As numbers are equal, and NaN (absent, too) equals itself.
bool same(double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b));
}
bool same(const std::optional<Spread>& a, const std::optional<Spread>& b) {
    if (!a || !b) {
        return a.has_value() == b.has_value();
    }
    return same(a->mean, b->mean) && same(a->min, b->min) && same(a->p50, b->p50) &&
           same(a->p99, b->p99) && same(a->max, b->max);
}
bool same(const std::vector<double>& a, const std::vector<double>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](double x, double y) { return same(x, y); });
}

void compare(const JobStats& got, const JobStats& plain) {
    EXPECT_EQ(got.ranks_reporting, plain.ranks_reporting);
    EXPECT_EQ(got.step, plain.step);
    EXPECT_EQ(got.last_step_time, plain.last_step_time);
    EXPECT_EQ(got.total_steps, plain.total_steps);
    EXPECT_TRUE(same(got.loss, plain.loss));
    EXPECT_TRUE(same(got.step_seconds, plain.step_seconds));
    EXPECT_EQ(got.samples_total, plain.samples_total);
    EXPECT_EQ(got.tokens_total, plain.tokens_total);
    EXPECT_EQ(got.samples_per_second, plain.samples_per_second);
    EXPECT_EQ(got.data_wait_ratio, plain.data_wait_ratio);
    EXPECT_EQ(got.comm_exposed_ratio, plain.comm_exposed_ratio);
    EXPECT_EQ(got.grad_norm, plain.grad_norm);
    EXPECT_EQ(got.checkpoint_seconds, plain.checkpoint_seconds);
    EXPECT_EQ(got.nonfinite_loss, plain.nonfinite_loss);
    EXPECT_TRUE(same(got.straggler_score, plain.straggler_score));
    EXPECT_TRUE(same(got.straggler_z, plain.straggler_z));
    if (!plain.straggler_score.empty()) {
        std::size_t slowest = plain.straggler_score.size();
        for (std::size_t i = 0; i < plain.straggler_score.size(); ++i) {
            const double score = plain.straggler_score[i];
            if (!is_absent(score) && (slowest == plain.straggler_score.size() ||
                                      score < plain.straggler_score[slowest])) {
                slowest = i;
            }
        }
        EXPECT_EQ(got.slowest_rank, slowest);
    }
}

TEST(JobStatsFormula, IsWhatThePlainOneSaysOfEveryStepOfARandomRun) {
    for (const std::size_t ranks : {1U, 2U, 37U, 700U}) {
        RandomRun run{ranks, 11 * ranks};
        for (int step = 0; step < 120; ++step) {
            const double now = 1000 + 2 * step;
            run.go_on(now);
            compare(compute_job_stats(run.job, now), plain_stats(run, now));
            if (testing::Test::HasFailure()) {
                FAIL() << "of " << ranks << " ranks after step " << step;
            }
        }
        // Nobody is heard any more: all that ever reported count.
        compare(compute_job_stats(run.job, 9000), plain_stats(run, 9000));
    }
}

}  // namespace
}  // namespace lockstep::telemetry
