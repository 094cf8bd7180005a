#include "daemon/telemetry/series/history_scan.hpp"

#include "tests/unit/telemetry/history_scan_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace lockstep::telemetry {
namespace {

HistoryAsk question(std::size_t columns, std::vector<std::uint32_t> ranks = {0}) {
    HistoryAsk ask;
    ask.metric = "loss";
    ask.entities = std::move(ranks);
    ask.columns = columns;
    return ask;
}

// The promise: whatever the zoom, the extremes of a column are those of the data in it.
void check_columns(const std::vector<RowOf>& reports, const std::vector<RankHistory>& got,
                   const HistoryAsk& ask) {
    std::vector<RowOf> in;
    for (const RowOf& one : reports) {
        const double x = ask.x == Axis::step ? static_cast<double>(one.step) : one.time;
        if (x >= ask.from && x <= ask.to) {
            in.push_back(one);
        }
    }
    if (in.empty()) {
        EXPECT_TRUE(got.empty() || got[0].buckets.empty());
        return;
    }
    ASSERT_EQ(got.size(), 1U);
    ASSERT_LE(got[0].buckets.size(), ask.columns);
    double low = kInf;
    double high = -kInf;
    for (const RowOf& one : in) {
        const double x = ask.x == Axis::step ? static_cast<double>(one.step) : one.time;
        low = std::min(low, x);
        high = std::max(high, x);
    }
    if (in.size() <= ask.columns) {
        ASSERT_EQ(got[0].buckets.size(), in.size());
        return;
    }
    // From outside only the buckets' own x are known: the data between two of them must agree.
    std::map<std::size_t, SeriesBucket> expected;
    const Columns columns = plan_columns(ask.x, low, high, ask.columns);
    for (const RowOf& one : in) {
        const double x = ask.x == Axis::step ? static_cast<double>(one.step) : one.time;
        auto& bucket = expected[columns.column_of(x)];
        bucket.x = x;
        bucket.last = std::isfinite(one.value) ? std::optional{one.value} : std::nullopt;
        if (std::isfinite(one.value)) {
            bucket.min = std::min(bucket.min.value_or(one.value), one.value);
            bucket.max = std::max(bucket.max.value_or(one.value), one.value);
        }
    }
    ASSERT_EQ(got[0].buckets.size(), expected.size());
    std::size_t i = 0;
    for (const auto& [column, bucket] : expected) {
        ASSERT_EQ(got[0].buckets[i].x, bucket.x);
        ASSERT_EQ(got[0].buckets[i].min, bucket.min);
        ASSERT_EQ(got[0].buckets[i].max, bucket.max);
        ASSERT_EQ(got[0].buckets[i].last, bucket.last);
        ++i;
    }
}

TEST(HistoryScan, EveryColumnHasTheExtremesOfItsDataAtAnyZoom) {
    std::mt19937 random{11};
    for (int round = 0; round < 40; ++round) {
        const std::size_t count = 1 + random() % 30'000;
        const std::int64_t stride = 1 + static_cast<std::int64_t>(random() % 12);
        std::vector<RowOf> reports;
        std::int64_t step = static_cast<std::int64_t>(random() % 5000);
        for (std::size_t i = 0; i < count; ++i) {
            step += stride;
            double value = std::normal_distribution<double>{}(random);
            value = random() % 500 == 0 ? 1000.0 * value : value;
            value = random() % 300 == 0 ? (random() % 2 == 0 ? kNan : kInf) : value;
            reports.push_back({step, 1e9 + 0.37 * static_cast<double>(i), value});
        }
        Fed fed;
        fed.add(reports, 1 + random() % (count + 1));
        for (int zoom = 0; zoom < 6; ++zoom) {
            HistoryAsk ask = question(1 + random() % 300);
            ask.x = zoom % 3 == 2 ? Axis::time : Axis::step;
            if (zoom >= 2) {
                const std::size_t a = random() % count;
                const std::size_t b = a + random() % (count - a);
                const bool by_step = ask.x == Axis::step;
                ask.from = by_step ? static_cast<double>(reports[a].step) : reports[a].time;
                ask.to = by_step ? static_cast<double>(reports[b].step) : reports[b].time;
            }
            const auto got = fed.ask(ask);
            check_columns(reports, got, ask);
            if (HasFatalFailure()) {
                FAIL() << "round " << round << " zoom " << zoom;
            }
        }
    }
}

TEST(HistoryScan, AWholeRunIsReadFromThePyramidAndALookAtAPartFromTheRows) {
    std::vector<RowOf> reports;
    for (std::int64_t step = 0; step < 400'000; ++step) {
        reports.push_back({step, static_cast<double>(step), step == 123'456 ? 9.0 : 1.0});
    }
    Fed fed;
    fed.add(reports, 50'000);
    const auto whole = fed.ask(question(300));
    EXPECT_EQ(fed.source.read_[2], 0) << "1,334 steps a column: a quarter of it is 333";
    EXPECT_EQ(fed.source.read_[1], 8);
    const auto highest = std::max_element(
        whole[0].buckets.begin(), whole[0].buckets.end(),
        [](const auto& a, const auto& b) { return a.max.value() < b.max.value(); });
    EXPECT_EQ(highest->max, 9.0);
    fed.source.read_.clear();
    HistoryAsk part = question(300);
    part.from = 123'400;
    part.to = 123'500;
    const auto near = fed.ask(part);
    ASSERT_EQ(near[0].buckets.size(), 101U);
    EXPECT_EQ(near[0].buckets[56].max, 9.0);
    EXPECT_EQ(fed.source.read_[1], 0);
}

TEST(HistoryScan, ALongerRunMovesNoColumn) {
    std::vector<RowOf> reports;
    for (std::int64_t step = 0; step < 9000; ++step) {
        reports.push_back({step, 0, static_cast<double>(step % 17)});
    }
    Fed fed;
    fed.add(reports, 1000);
    const auto before = fed.ask(question(100));
    fed.add({{9000, 0, 5.0}}, 1000);
    const auto after = fed.ask(question(100));
    for (std::size_t i = 0; i + 2 < before[0].buckets.size(); ++i) {
        EXPECT_EQ(before[0].buckets[i].x, after[0].buckets[i].x);
        EXPECT_EQ(before[0].buckets[i].max, after[0].buckets[i].max);
    }
}

TEST(HistoryScan, WhatALaterGenerationMadeAgainIsReplaced) {
    for (const std::size_t per_chunk : {3U, 1000U}) {
        Fed fed;
        std::vector<RowOf> first;
        for (std::int64_t step = 0; step < 10; ++step) {
            first.push_back({step, static_cast<double>(step), 1});
        }
        fed.add(first, per_chunk, {1, 1});
        fed.add({{6, 20, 2}, {7, 21, 2}}, per_chunk, {1, 2});
        fed.add({{7, 30, 3}}, per_chunk, {2, 1});
        const auto got = fed.ask(question(800));
        std::vector<double> values;
        for (const auto& bucket : got[0].buckets) {
            values.push_back(bucket.last.value());
        }
        EXPECT_THAT(values, testing::ElementsAre(1, 1, 1, 1, 1, 1, 2, 3));
    }
}

TEST(HistoryScan, AfterARestartFromTheBeginningEachStepHasItsOwnColumn) {
    for (const std::size_t per_chunk : {100U, 5000U}) {
        Fed fed;
        std::vector<RowOf> first;
        std::vector<RowOf> again;
        for (std::int64_t step = 0; step < 1000; ++step) {
            first.push_back({step, static_cast<double>(step), 1});
            if (step < 10) {
                again.push_back({step, 2000.0 + static_cast<double>(step), 2});
            }
        }
        fed.add(first, per_chunk, {1, 1});
        fed.add(again, per_chunk, {1, 2});
        const auto got = fed.ask(question(50));
        ASSERT_EQ(got[0].buckets.size(), 10U);
        for (const auto& bucket : got[0].buckets) {
            EXPECT_EQ(bucket.min, 2);
        }
    }
}

TEST(HistoryScan, NonfiniteValuesAreListedAndCountedAndStayOutOfTheExtremes) {
    Fed fed;
    std::vector<RowOf> reports;
    for (std::int64_t step = 0; step < 2000; ++step) {
        reports.push_back({step, 0, step % 100 == 99 ? kNan : 1.0});
    }
    fed.add(reports, 300);
    const auto got = fed.ask(question(3));
    EXPECT_EQ(got[0].nonfinite_total, 20U);
    ASSERT_EQ(got[0].nonfinite.size(), 20U);
    EXPECT_EQ(got[0].nonfinite[4].step, 499);
    EXPECT_EQ(got[0].buckets[0].max, 1.0);
}

TEST(HistoryScan, ADamagedChunkIsLeftOutAndTheOthersAnswer) {
    for (const std::string_view section : {kRowsSection, kStepSection, std::string_view{"loss"}}) {
        Fed fed;
        std::vector<RowOf> reports;
        for (std::int64_t step = 0; step < 30; ++step) {
            reports.push_back({step, 0, 1});
        }
        fed.add(reports, 10);
        for (Section& one : fed.source.chunks_[1].sections) {
            if (one.name == section) {
                one.data.resize(one.data.size() / 2);
            }
        }
        const auto got = fed.ask(question(100));
        ASSERT_EQ(got.size(), 1U) << section;
        ASSERT_EQ(got[0].buckets.size(), 20U) << section;
        EXPECT_EQ(got[0].buckets[9].x, 9);
        EXPECT_EQ(got[0].buckets[10].x, 20);
    }
}

TEST(HistoryScan, StepsAtTheEndOfTheirRangeMakeColumnsWithoutOverflow) {
    const Columns columns = plan_columns(Axis::step, 0, 4.6e18, 3);
    EXPECT_LE(columns.count, 3U);
    EXPECT_GT(columns.width, 1e18);
    EXPECT_EQ(columns.column_of(4.6e18), columns.count - 1);
}

TEST(HistoryScan, OnlyTheRanksAskedForAcrossBlocks) {
    Fed fed;
    for (const std::uint32_t rank : {0U, 63U, 64U, 200U}) {
        fed.add({{1, 0, static_cast<double>(rank)}}, 1000, {1, 1}, rank);
    }
    fed.store();
    fed.add({{2, 0, 7}}, 1000, {1, 1}, 64);
    const auto got = fed.ask(question(10, {63, 64, 199}));
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].rank, 63);
    EXPECT_EQ(got[1].rank, 64);
    EXPECT_EQ(got[1].buckets.size(), 2U);
}

}  // namespace
}  // namespace lockstep::telemetry
