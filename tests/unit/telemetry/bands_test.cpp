#include "daemon/telemetry/series/bands.hpp"

#include "daemon/telemetry/series/history.hpp"
#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <memory>
#include <numeric>

namespace lockstep::telemetry {
namespace {

class NoChunks final : public HistorySource {
  public:
    Result<std::vector<ChunkMeta>> chunks(std::uint32_t, std::uint32_t) override {
        return std::vector<ChunkMeta>{};
    }
    Result<std::optional<std::string>> section(std::int64_t, std::string_view,
                                               std::uint8_t) override {
        return std::optional<std::string>{};
    }
};

// What ranks 0 … ranks - 1 reported at steps 0 … steps - 1.
template <class Value>
std::vector<TailRows> reported(std::uint32_t ranks, std::int64_t steps, Value value) {
    TailRows rows;
    rows.start = {1, 1};
    for (std::int64_t step = 0; step < steps; ++step) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            rows.entities.push_back(rank);
            rows.steps.push_back(step);
            rows.times.push_back(1000 + static_cast<double>(step));
            rows.values.push_back(value(rank, step));
        }
    }
    return {rows};
}

BandsAsk all_of(std::uint32_t ranks) {
    BandsAsk ask;
    ask.metric = "busy_seconds";
    ask.entities.resize(ranks);
    std::iota(ask.entities.begin(), ask.entities.end(), 0U);
    for (std::size_t i = 0; i < kBandStats; ++i) {
        ask.stats.push_back(static_cast<BandStat>(i));
    }
    return ask;
}

BandsAnswer fold(const BandsAsk& ask, const std::vector<TailRows>& tail) {
    NoChunks none;
    auto out = fold_bands(none, ask, tail);
    EXPECT_TRUE(out.has_value());
    return out.value_or(BandsAnswer{});
}

TEST(Bands, QuantilesAreOfTheNearestRank) {
    // At step s the ranks have s + 1 … s + 100, in another order.
    const auto tail = reported(100, 3, [](std::uint32_t rank, std::int64_t step) {
        return static_cast<double>(step) + 1 + (rank * 37) % 100;
    });
    const BandsAnswer out = fold(all_of(100), tail);
    EXPECT_EQ(out.bands.x, (std::vector<double>{0, 1, 2}));
    EXPECT_EQ(out.bands.count, (std::vector<std::uint32_t>{100, 100, 100}));
    const std::vector<double> first{1, 5, 25, 50.5, 75, 95, 100, 50.5};
    for (std::size_t i = 0; i < kBandStats; ++i) {
        EXPECT_DOUBLE_EQ(out.bands.values[i][0], first[i]) << kBandStatNames[i];
        EXPECT_DOUBLE_EQ(out.bands.values[i][2], first[i] + 2) << kBandStatNames[i];
    }
}

TEST(Bands, TheMedianOfTwoRanksIsBetweenThem) {
    const auto tail =
        reported(2, 2, [](std::uint32_t rank, std::int64_t) { return rank == 0 ? 0.25 : 0.75; });
    BandsAsk ask = all_of(2);
    ask.worst = 2;
    const BandsAnswer out = fold(ask, tail);
    const auto at = static_cast<std::size_t>(BandStat::median);
    EXPECT_EQ(out.bands.values[at], (std::vector<double>{0.5, 0.5}));
    ASSERT_EQ(out.worst.size(), 2U);
    EXPECT_EQ(out.worst[0].history.rank, 1);
    EXPECT_DOUBLE_EQ(out.worst[0].score.value_or(0), 0.6745);
    EXPECT_DOUBLE_EQ(out.worst[1].score.value_or(0), -0.6745);
}

TEST(Bands, ColumnsOfManyStepsKeepEveryExtreme) {
    const auto tail = reported(10, 1000, [](std::uint32_t rank, std::int64_t step) {
        return rank == 3 && step == 501 ? 99.0 : rank == 4 && step == 502 ? -99.0 : 1.0;
    });
    BandsAsk ask = all_of(10);
    ask.columns = 20;
    const BandsAnswer out = fold(ask, tail);
    EXPECT_LE(out.bands.x.size(), 20U);
    EXPECT_EQ(*std::min_element(out.bands.values[0].begin(), out.bands.values[0].end()), -99.0);
    EXPECT_EQ(*std::max_element(out.bands.values[6].begin(), out.bands.values[6].end()), 99.0);
    EXPECT_EQ(out.bands.x.back(), 999);
    ask.x = Axis::time;
    EXPECT_EQ(fold(ask, tail).bands.x.back(), 1999);
}

TEST(Bands, TheWorstIsTheOneFarthestFromTheMedian) {
    const auto tail = reported(1000, 20, [](std::uint32_t rank, std::int64_t step) {
        const double noise = 0.001 * static_cast<double>((rank * 7 + step) % 10);
        return 0.1 + noise + (rank == 777 ? 0.05 : rank == 5 ? -0.05 : 0.0);
    });
    BandsAsk ask = all_of(1000);
    ask.worst = 2;
    BandsAnswer out = fold(ask, tail);
    ASSERT_EQ(out.worst.size(), 2U);
    EXPECT_EQ(out.worst[0].history.rank, 777);
    EXPECT_GT(out.worst[0].score.value_or(0), 6);
    EXPECT_LT(out.worst[1].score.value_or(99), 3);
    EXPECT_EQ(out.worst[0].history.buckets.size(), 20U);
    ask.low_is_worse = true;
    out = fold(ask, tail);
    EXPECT_EQ(out.worst[0].history.rank, 5);
}

TEST(Bands, WhatIsNotFiniteIsCountedAndComesFirst) {
    const auto tail = reported(8, 4, [](std::uint32_t rank, std::int64_t step) {
        return rank == 6 && step >= 2 ? std::nan("") : rank == 2 ? 50.0 : 1.0;
    });
    BandsAsk ask = all_of(8);
    ask.worst = 8;
    const BandsAnswer out = fold(ask, tail);
    EXPECT_EQ(out.bands.nonfinite, (std::vector<std::uint32_t>{0, 0, 1, 1}));
    EXPECT_EQ(out.bands.count, (std::vector<std::uint32_t>{8, 8, 7, 7}));
    EXPECT_EQ(out.bands.values[6][3], 50.0);
    EXPECT_EQ(out.worst[0].history.rank, 6);
    EXPECT_EQ(out.worst[0].history.nonfinite_total, 2U);
    EXPECT_EQ(out.worst[1].history.rank, 2);
    EXPECT_EQ(out.worst.size(), 8U);
}

TEST(Bands, NobodyReportedAndEqualOnes) {
    EXPECT_TRUE(fold(all_of(4), {}).bands.x.empty());
    BandsAsk ask = all_of(4);
    ask.worst = 3;
    const auto equal = reported(4, 2, [](std::uint32_t, std::int64_t) { return 0.0; });
    const BandsAnswer out = fold(ask, equal);
    ASSERT_EQ(out.worst.size(), 3U);
    EXPECT_EQ(out.worst[0].score, 0);
    EXPECT_EQ(out.worst[0].history.rank, 0) << "the lowest of equals";
    ask.entities = {1, 3};
    EXPECT_EQ(fold(ask, equal).bands.count, (std::vector<std::uint32_t>{2, 2}));
}

TEST(Bands, FewMetricsOfManyRanksBecomeChunksBeforeTheirCopyTakesLong) {
    const auto history = std::make_shared<History>();
    const std::vector<double> value{1.0};
    std::int64_t step = 0;
    for (; step < 100 && !history->due(1); ++step) {
        for (std::uint32_t rank = 0; rank < 10'000; ++rank) {
            history->add({1, 1}, rank, step, 1, value, 1);
        }
    }
    EXPECT_EQ(step, 25);
    EXPECT_EQ(history->seal().size(), 157U);
    EXPECT_FALSE(history->due(1));
}

TEST(Bands, TenThousandRanksTakeAFractionOfASecond) {
    const auto tail = reported(10'000, 600, [](std::uint32_t rank, std::int64_t step) {
        return 0.1 + 1e-6 * static_cast<double>((rank * 7919 + step * 104'729) % 10'007);
    });
    BandsAsk ask = all_of(10'000);
    ask.worst = 8;
    ask.stats = {BandStat::lowest, BandStat::p5, BandStat::median, BandStat::p95,
                 BandStat::highest};
    const std::clock_t begun = std::clock();  // the processor's time: others may need it too
    const BandsAnswer out = fold(ask, tail);
    const std::clock_t took = std::clock() - begun;
    EXPECT_EQ(out.bands.x.size(), 600U);
    std::cout << "10,000 ranks x 600 steps: " << took / (CLOCKS_PER_SEC / 1000) << " ms\n";
    EXPECT_LT(took, (test::kSanitized ? 60 : 5) * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace lockstep::telemetry
