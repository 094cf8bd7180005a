#include "daemon/telemetry/series/rank_series.hpp"

#include "tests/unit/telemetry/names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lockstep::telemetry {
namespace {

constexpr std::size_t kLoss = index(CoreMetric::loss);

std::vector<double> loss(double value) {
    std::vector<double> values(kCoreMetrics, kAbsent);
    values[kLoss] = value;
    return values;
}

void add_losses(RankSeries& rank, const std::vector<double>& values, std::size_t capacity,
                std::int64_t first_step = 0) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto step = first_step + static_cast<std::int64_t>(i);
        rank.add(step, static_cast<double>(step), 0, loss(values[i]), capacity);
    }
}

TEST(RankSeries, KeepsEachReportAsARowWhileThereIsRoom) {
    RankSeries rank;
    add_losses(rank, {3, 2, 1}, 4);
    ASSERT_EQ(rank.rows(), 3U);
    EXPECT_EQ(rank.stride(), 1U);
    const MetricColumn& column = *rank.column(kLoss);
    for (std::size_t row = 0; row < 3; ++row) {
        EXPECT_EQ(rank.step(row), static_cast<std::int64_t>(row));
        EXPECT_EQ(column.last_of(row), 3.0 - static_cast<double>(row));
        EXPECT_EQ(column.low_of(row), column.last_of(row));
        EXPECT_EQ(column.high_of(row), column.last_of(row));
    }
}

// Otherwise a rank that says nothing any more would count as heard for as long as NCCL answers.
TEST(RankSeries, WhatItsAgentHasSeenShowsNobodyThatTheRankIsHeard) {
    RankSeries rank;
    std::vector<double> seen(kCoreMetrics, kAbsent);
    seen[index(CoreMetric::nccl_lag)] = 1;
    seen[index(CoreMetric::nccl_collectives)] = 7;
    rank.add(-1, 5, 5, seen, 8);
    EXPECT_TRUE(rank.empty());
    EXPECT_EQ(rank.latest(CoreMetric::nccl_lag), 1.0);
    rank.add(3, 10, 10, loss(1.0), 8);
    rank.add(-1, 20, 20, seen, 8);
    EXPECT_EQ(rank.reports(), 1U);
    EXPECT_EQ(rank.last_received(), 10.0);
    EXPECT_EQ(rank.last_time(), 10.0);
    EXPECT_EQ(rank.interval(), std::nullopt);
    EXPECT_EQ(rank.total(CoreMetric::nccl_collectives), 14.0);
    EXPECT_EQ(rank.last_step(), 3);
    // What it says itself counts, whatever comes with it.
    seen[kLoss] = 0.5;
    rank.add(-1, 30, 30, seen, 8);
    rank.add(4, 40, 40, std::vector<double>(kCoreMetrics, kAbsent), 8);
    EXPECT_EQ(rank.reports(), 3U);
    EXPECT_EQ(rank.last_received(), 40.0);
}

TEST(RankSeries, MergesNeighboursWhenFullAndKeepsEveryExtreme) {
    RankSeries rank;
    std::vector<double> values(1000, 1.0);
    values[137] = 50;
    values[638] = -7;
    add_losses(rank, values, 64);
    EXPECT_LE(rank.rows(), 64U);
    EXPECT_GE(rank.rows(), 32U);
    EXPECT_EQ(rank.stride(), 16U);
    const MetricColumn& column = *rank.column(kLoss);
    double low = kInf;
    double high = -kInf;
    for (std::size_t row = 0; row < rank.rows(); ++row) {
        low = std::min(low, column.low_of(row));
        high = std::max(high, column.high_of(row));
    }
    EXPECT_EQ(low, -7);
    EXPECT_EQ(high, 50);
    EXPECT_EQ(rank.step(rank.rows() - 1), 999);
    EXPECT_EQ(rank.step(0), 15) << "a merged row carries the step of its newest report";
    // The row with the spike is the one that covers its step.
    EXPECT_EQ(column.high_of(137 / 16), 50);
    EXPECT_EQ(column.low_of(638 / 16), -7);
}

TEST(RankSeries, EveryMergedRowHoldsStrideReportsWhateverTheCapacity) {
    for (const std::size_t capacity : {2U, 3U, 5U, 7U, 64U}) {
        RankSeries rank;
        add_losses(rank, std::vector<double>(777, 1.0), capacity);
        EXPECT_LE(rank.rows(), capacity);
        for (std::size_t row = 0; row + 1 < rank.rows(); ++row) {
            const auto newest = static_cast<std::uint64_t>(rank.step(row));
            EXPECT_EQ(newest, (row + 1) * rank.stride() - 1) << "capacity " << capacity;
        }
        EXPECT_EQ(rank.step(rank.rows() - 1), 776);
    }
}

TEST(RankSeries, NonfiniteValuesStayOutOfTheExtremesAndAreRemembered) {
    RankSeries rank;
    std::vector<double> values(100, 1.0);
    values[10] = kNan;
    values[11] = kInf;
    values[99] = -kInf;
    add_losses(rank, values, 8);
    const MetricColumn& column = *rank.column(kLoss);
    for (std::size_t row = 0; row < rank.rows(); ++row) {
        EXPECT_EQ(column.low_of(row), 1);
        EXPECT_EQ(column.high_of(row), 1);
    }
    EXPECT_EQ(column.last_of(rank.rows() - 1), -kInf);
    EXPECT_EQ(column.nonfinite_total, 3U);
    EXPECT_EQ(rank.nonfinite(CoreMetric::loss), 3U);
    EXPECT_EQ(rank.nonfinite(), 3U);
    ASSERT_EQ(column.nonfinite.size(), 3U);
    EXPECT_EQ(column.nonfinite[0].step, 10);
    EXPECT_TRUE(std::isnan(column.nonfinite[0].value));
    EXPECT_EQ(column.nonfinite[1].value, kInf);
    EXPECT_EQ(rank.total(CoreMetric::loss), 97) << "the sum is over finite values";
}

TEST(RankSeries, ARowOfOnlyNonfiniteValuesHasNoExtremes) {
    RankSeries rank;
    add_losses(rank, std::vector<double>(40, kNan), 4);
    const MetricColumn& column = *rank.column(kLoss);
    EXPECT_TRUE(is_absent(column.low_of(0)));
    EXPECT_TRUE(is_absent(column.high_of(0)));
    EXPECT_TRUE(std::isnan(column.last_of(0)));
    EXPECT_FALSE(is_absent(column.last_of(0)));
}

TEST(RankSeries, ARestartReplacesTheStepsFromWhereItResumed) {
    RankSeries rank;
    add_losses(rank, std::vector<double>(10, 1.0), 64);
    rank.restart();
    EXPECT_EQ(rank.rows(), 10U) << "nothing goes before it is known where the rank resumed";
    add_losses(rank, {5, 5, 5}, 64, 6);
    ASSERT_EQ(rank.rows(), 9U);
    const MetricColumn& column = *rank.column(kLoss);
    for (std::size_t row = 0; row < rank.rows(); ++row) {
        EXPECT_EQ(rank.step(row), static_cast<std::int64_t>(row));
        EXPECT_EQ(column.last_of(row), row < 6 ? 1 : 5);
    }
    EXPECT_EQ(rank.last_step(), 8);
    EXPECT_EQ(rank.total(CoreMetric::loss), 10 * 1 + 3 * 5)
        << "work that was repeated was done twice";
}

TEST(RankSeries, ARestartInMergedHistoryKeepsOnlyRowsThatEndBeforeIt) {
    RankSeries rank;
    add_losses(rank, std::vector<double>(100, 1.0), 16);
    ASSERT_EQ(rank.stride(), 8U);
    rank.restart();
    add_losses(rank, {9}, 16, 50);
    const MetricColumn& column = *rank.column(kLoss);
    ASSERT_EQ(rank.rows(), 7U);
    EXPECT_EQ(rank.step(5), 47);
    EXPECT_EQ(rank.step(6), 50);
    EXPECT_EQ(column.low_of(6), 9);
}

TEST(RankSeries, ARestartForgetsNonfiniteValuesOfReplacedStepsButNotTheirNumber) {
    RankSeries rank;
    add_losses(rank, {1, kNan, 1, kNan}, 64);
    rank.restart();
    add_losses(rank, {1, 1}, 64, 2);
    EXPECT_EQ(rank.column(kLoss)->nonfinite.size(), 1U);
    EXPECT_EQ(rank.column(kLoss)->nonfinite_total, 2U);
}

TEST(RankSeries, ReportsOfOneStepWithDifferentMetricsShareARow) {
    RankSeries rank;
    rank.add(3, 1.0, 0, loss(0.5), 64);
    std::vector<double> epoch(kCoreMetrics, kAbsent);
    epoch[index(CoreMetric::epoch)] = 1;
    rank.add(3, 1.1, 0, epoch, 64);
    EXPECT_EQ(rank.rows(), 1U);
    EXPECT_EQ(rank.column(index(CoreMetric::epoch))->last_of(0), 1);
    rank.add(3, 1.2, 0, loss(0.4), 64);
    EXPECT_EQ(rank.rows(), 2U) << "the same metric again is another report";
}

TEST(RankSeries, AReportWithoutAStepBelongsToTheLastOne) {
    RankSeries rank;
    rank.add(-1, 1, 0, loss(2), 64);
    EXPECT_EQ(rank.step(0), -1);
    EXPECT_EQ(rank.last_step(), -1);
    rank.add(7, 2, 0, loss(1), 64);
    rank.add(-1, 3, 0, loss(0.5), 64);
    EXPECT_EQ(rank.step(2), 7);
    EXPECT_EQ(rank.last_step(), 7);
}

TEST(RankSeries, AMetricThatAppearsLateIsAbsentBefore) {
    RankSeries rank;
    add_losses(rank, std::vector<double>(100, 1.0), 16);
    std::vector<double> values = loss(1);
    values.push_back(0.9);
    rank.add(100, 100, 0, values, 16);
    const MetricColumn& column = *rank.column(kCoreMetrics);
    EXPECT_TRUE(is_absent(column.last_of(0)));
    EXPECT_TRUE(is_absent(column.low_of(0)));
    EXPECT_EQ(column.last_of(rank.rows() - 1), 0.9);
    EXPECT_EQ(column.high_of(rank.rows() - 1), 0.9);
}

TEST(RankSeries, MeansFollowTheFormula) {
    Ewma20 mean;
    EXPECT_EQ(mean.value(), std::nullopt);
    mean.add(10);
    mean.add(31);
    mean.add(kNan);
    EXPECT_DOUBLE_EQ(*mean.value(), 10 + 2.0 / 21.0 * 21);
}

// Two values of a script that are each within a double made the mean none: infinite, then NaN.
TEST(RankSeries, AMeanOfWhatIsFiniteIsFinite) {
    Ewma20 mean;
    for (const double value : {-1.7e308, 1.7e308, 1.0, 1.7e308, -1.7e308}) {
        mean.add(value);
        ASSERT_TRUE(mean.value());
        EXPECT_TRUE(std::isfinite(*mean.value())) << value;
    }
}

TEST(RankSeries, MemoryIsAccountedForAndBounded) {
    RankSeries rank;
    add_losses(rank, std::vector<double>(100'000, 1.0), 1024);
    const std::size_t bytes = rank.bytes();
    EXPECT_GT(bytes, 512U * (16 + 24));
    EXPECT_LT(bytes, 4U * 1024U * (16 + 24));
}

// It is kept up to date and not counted: whatever was added, replaced or merged.
TEST(RankSeries, MemoryIsWhatItsColumnsTake) {
    std::mt19937 random{3};
    RankSeries rank;
    std::size_t most_rows = 0;
    std::int64_t step = 0;
    for (int i = 0; i < 2000; ++i) {
        std::vector<double> values(kCoreMetrics + random() % 5, kAbsent);
        for (double& value : values) {
            value = random() % 3 == 0 ? kAbsent : random() % 50 == 0 ? kNan : 1.0;
        }
        if (random() % 300 == 0) {
            rank.restart();
            step -= static_cast<std::int64_t>(random() % 40);
        }
        rank.add(step, i, i, values, i < 1000 ? 64 : 16);
        step += static_cast<std::int64_t>(random() % 2);
        most_rows = std::max(most_rows, rank.rows());
        std::size_t columns = 0;
        std::size_t reported = 0;
        for (std::size_t metric = 0; metric < kCoreMetrics + 4; ++metric) {
            if (const MetricColumn* column = rank.column(metric)) {
                columns += column->heap();
                ++reported;
            }
        }
        EXPECT_EQ(rank.metrics(), reported);
        const std::size_t others = rank.bytes() - sizeof rank - columns;
        EXPECT_GE(others, reported * sizeof(MetricColumn) + rank.rows() * 16);
        EXPECT_LE(others, 2 * ((kCoreMetrics + 4) * sizeof(MetricColumn) + most_rows * 16));
    }
}

}  // namespace
}  // namespace lockstep::telemetry
