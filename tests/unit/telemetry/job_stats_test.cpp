#include "daemon/telemetry/series/job_stats.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::telemetry {
namespace {

constexpr double kNow = 2000;

// Reports of several ranks in one batch, received at `received`.
class Feed {
  public:
    explicit Feed(std::size_t ranks) : job(ranks) { batch_.seq = 1; }
    Feed& row(std::uint32_t rank, std::int64_t step,
              std::initializer_list<std::pair<const char*, double>> values) {
        batch_.add_row(rank, step, 1000 + static_cast<double>(step));
        for (const auto& [name, value] : values) {
            batch_.set(name, value);
        }
        return *this;
    }
    Feed& send(double received = kNow) {
        job.ingest(batch_, 1, received);
        const auto seq = batch_.seq + 1;
        batch_ = {};
        batch_.seq = seq;
        return *this;
    }
    JobSeries job;

  private:
    Batch batch_;
};

TEST(JobStats, NothingReportedIsAbsentNotZero) {
    const JobStats stats = compute_job_stats(JobSeries{4}, kNow);
    EXPECT_EQ(stats.ranks_reporting, 0U);
    EXPECT_EQ(stats.step, std::nullopt);
    EXPECT_FALSE(stats.loss.has_value());
    EXPECT_FALSE(stats.step_seconds.has_value());
    EXPECT_EQ(stats.samples_total, std::nullopt);
    EXPECT_EQ(stats.data_wait_ratio, std::nullopt);
    EXPECT_EQ(stats.slowest_rank, std::nullopt);
}

TEST(JobStats, TheStepIsTheHighestThatAllReportingRanksReached) {
    Feed feed{3};
    feed.row(0, 4, {{"loss", 4.0}}).row(0, 5, {{"loss", 3.0}});
    feed.row(1, 4, {{"loss", 8.0}}).send();
    const JobStats stats = compute_job_stats(feed.job, kNow);
    EXPECT_EQ(stats.ranks_reporting, 2U);
    EXPECT_EQ(stats.step, 4);
    EXPECT_EQ(stats.last_step_time, 1005);
    ASSERT_TRUE(stats.loss.has_value());
    EXPECT_EQ(stats.loss->mean, 6) << "of step 4, which both have";
    EXPECT_EQ(stats.loss->min, 4);
    EXPECT_EQ(stats.loss->max, 8);
}

TEST(JobStats, ASilentRankDoesNotHoldTheOthersBack) {
    Feed feed{2};
    feed.row(0, 3, {{"loss", 1.0}}).send(kNow - 100);
    feed.row(1, 9, {{"loss", 2.0}}).send(kNow);
    EXPECT_EQ(compute_job_stats(feed.job, kNow).step, 9);
    EXPECT_EQ(compute_job_stats(feed.job, kNow).ranks_reporting, 1U);
    const JobStats over = compute_job_stats(feed.job, kNow + 1000);
    EXPECT_EQ(over.ranks_reporting, 0U);
    EXPECT_EQ(over.step, 3) << "when all are silent, all count";
}

TEST(JobStats, ANonfiniteLossIsShownAndCounted) {
    Feed feed{3};
    feed.row(0, 1, {{"loss", 1.0}, {"grad_norm", std::numeric_limits<double>::infinity()}});
    feed.row(1, 1, {{"loss", std::numeric_limits<double>::quiet_NaN()}});
    feed.row(2, 1, {{"loss", 3.0}, {"accuracy", std::numeric_limits<double>::quiet_NaN()}}).send();
    const JobStats stats = compute_job_stats(feed.job, kNow);
    EXPECT_TRUE(std::isnan(stats.loss->mean));
    EXPECT_EQ(stats.loss->min, 1);
    EXPECT_EQ(stats.loss->max, 3);
    EXPECT_EQ(stats.nonfinite_loss, 1U);
    EXPECT_EQ(stats.nonfinite_grad_norm, 1U);
    EXPECT_EQ(stats.nonfinite_other, 1U);
}

TEST(JobStats, StepTimeQuantilesAreNearestRank) {
    Feed feed{100};
    for (std::uint32_t rank = 0; rank < 100; ++rank) {
        feed.row(rank, 1, {{"step_seconds", 1.0 + rank}});
    }
    feed.send();
    const auto spread = compute_job_stats(feed.job, kNow).step_seconds.value();
    EXPECT_EQ(spread.min, 1);
    EXPECT_EQ(spread.p50, 50);
    EXPECT_EQ(spread.p99, 99);
    EXPECT_EQ(spread.max, 100);
}

TEST(JobStats, SamplesAreSummedOverRanksAndStepsAndGivenPerSecond) {
    Feed feed{2};
    for (std::int64_t step = 0; step < 50; ++step) {
        feed.row(0, step, {{"samples", 64.0}, {"total_steps", 200.0}});
        feed.row(1, step, {{"samples", 32.0}});
    }
    feed.send();
    const JobStats stats = compute_job_stats(feed.job, kNow);
    EXPECT_EQ(stats.samples_total, 50 * 96);
    EXPECT_EQ(stats.total_steps, 200);
    EXPECT_DOUBLE_EQ(stats.samples_per_second.value(), 96) << "one step a second";
    EXPECT_EQ(compute_job_stats(feed.job, kNow + 1000).samples_total, 50 * 96);
}

TEST(JobStats, WaitsAreSharesOfTheStep) {
    Feed feed{2};
    feed.row(0, 1, {{"step_seconds", 1.0}, {"data_wait_seconds", 0.2}, {"comm_wait_seconds", 0.1}});
    feed.row(1, 1, {{"step_seconds", 1.0}, {"data_wait_seconds", 0.0}, {"comm_wait_seconds", 0.5}});
    feed.send();
    const JobStats stats = compute_job_stats(feed.job, kNow);
    EXPECT_DOUBLE_EQ(stats.data_wait_ratio.value(), 0.1);
    EXPECT_DOUBLE_EQ(stats.comm_exposed_ratio.value(), 0.3);
}

TEST(JobStats, TheMfuOfAJobIsTheMeanOverTheRanksThatReportOne) {
    Feed feed{4};
    EXPECT_EQ(compute_job_stats(feed.job, kNow).mfu, std::nullopt);
    feed.row(0, 1, {{"mfu", 0.9}}).row(0, 2, {{"mfu", 0.5}}).row(1, 2, {{"mfu", 0.25}});
    feed.row(2, 2, {{"mfu", std::numeric_limits<double>::quiet_NaN()}});
    feed.row(3, 2, {{"loss", 1.0}}).send();
    EXPECT_EQ(compute_job_stats(feed.job, kNow).mfu, 0.375);
}

TEST(JobStats, TheStragglerIsTheOneThatIsBusyLongest) {
    Feed feed{5};
    const double busy[] = {0.10, 0.11, 0.40, 0.09, 0.10};
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
        feed.row(rank, 1, {{"busy_seconds", busy[rank]}, {"step_seconds", 0.42}});
    }
    feed.send();
    const JobStats stats = compute_job_stats(feed.job, kNow);
    EXPECT_EQ(stats.slowest_rank, 2U);
    ASSERT_EQ(stats.straggler_score.size(), 5U);
    EXPECT_DOUBLE_EQ(stats.straggler_score[2], 0.25);
    EXPECT_DOUBLE_EQ(stats.straggler_score[3], 1) << "faster than the median is not below 1";
    // Median 0.10, absolute deviations 0 .01 .30 .01 0, their median 0.01.
    EXPECT_NEAR(stats.straggler_z[2], 0.6745 * 0.30 / 0.01, 1e-9);
}

TEST(JobStats, EqualRanksHaveNoInfiniteScores) {
    Feed feed{3};
    feed.row(0, 1, {{"busy_seconds", 1.0}}).row(1, 1, {{"busy_seconds", 1.0}});
    feed.row(2, 1, {{"loss", 1.0}}).send();
    const JobStats stats = compute_job_stats(feed.job, kNow);
    EXPECT_EQ(stats.straggler_z[0], 0);
    EXPECT_TRUE(is_absent(stats.straggler_score[2])) << "no busy time, no score";
    EXPECT_EQ(stats.slowest_rank, 0U);
}

TEST(StragglerWatch, NamesARankAfterTwentyStepsAndThirtySecondsOnly) {
    Feed feed{3};
    feed.row(0, 100, {{"busy_seconds", 1.0}}).row(1, 100, {{"busy_seconds", 2.0}});
    feed.row(2, 100, {{"busy_seconds", 1.0}}).send();
    StragglerWatch watch;
    JobStats stats;
    stats.straggler_score = {1, 0.5, 1};
    stats.straggler_z = {0, 20, 0};
    stats.step = 100;
    EXPECT_TRUE(watch.update(feed.job, stats, 0).empty());
    stats.step = 121;
    EXPECT_TRUE(watch.update(feed.job, stats, 10).empty()) << "too short";
    stats.step = 119;
    EXPECT_TRUE(watch.update(feed.job, stats, 31).empty()) << "too few steps";
    stats.step = 121;
    EXPECT_THAT(watch.update(feed.job, stats, 31), testing::ElementsAre(1U));
    stats.straggler_score[1] = 0.9;
    EXPECT_TRUE(watch.update(feed.job, stats, 32).empty());
    stats.straggler_score[1] = 0.5;
    EXPECT_TRUE(watch.update(feed.job, stats, 33).empty()) << "it starts anew";
}

// A first step that compiled for a minute stays in the mean of 20 for 50 steps.
TEST(StragglerWatch, ARankWhoseNewestStepIsAsFastAsTheOthersIsNotSlow) {
    Feed feed{3};
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        feed.row(rank, 100, {{"busy_seconds", 1.0}});
    }
    feed.send();
    StragglerWatch watch;
    JobStats stats;
    stats.straggler_score = {1, 1, 0.2};
    stats.straggler_z = {0, 0, 50};
    for (std::int64_t step = 100; step < 200; ++step) {
        stats.step = step;
        EXPECT_TRUE(watch.update(feed.job, stats, static_cast<double>(step)).empty());
    }
}

}  // namespace
}  // namespace lockstep::telemetry
