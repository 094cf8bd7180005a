#include "daemon/telemetry/series/heatmap.hpp"

#include "tests/unit/telemetry/history_scan_fixture.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace lockstep::telemetry {
namespace {

template <class T>
T field(const std::string& bytes, std::size_t at) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

TEST(Heatmap, KeepsTheHighestValueOfEveryCell) {
    Fed fed;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
        std::vector<RowOf> reports;
        for (std::int64_t step = 0; step < 1000; ++step) {
            reports.push_back({step, 0, rank == 2 && step == 777 ? 10.0 : 1.0});
        }
        fed.add(reports, 400, {1, 1}, rank);
    }
    fed.add({{0, 0, kNan}, {1, 0, kNan}}, 400, {1, 1}, 5);
    HeatmapAsk ask;
    ask.metric = "loss";
    ask.rank_high = 5;
    ask.columns = 100;
    const auto map = make_heatmap(fed.source, ask, fed.history.tail(0, {0, 1, 2, 3, 4, 5}).rows());
    ASSERT_TRUE(map);
    EXPECT_EQ(map->substr(0, 4), "LSH1");
    ASSERT_EQ(field<std::uint32_t>(*map, 8), 6U);
    ASSERT_EQ(field<std::uint32_t>(*map, 12), 100U);
    EXPECT_EQ(field<std::uint32_t>(*map, 20), 1U);
    EXPECT_EQ(field<std::int64_t>(*map, 32), 10);
    EXPECT_EQ(field<double>(*map, 40), 1.0);
    EXPECT_EQ(field<double>(*map, 48), 10.0);
    const auto cell = [&](std::size_t row, std::size_t column) {
        return static_cast<unsigned char>(map->at(56 + row * 100 + column));
    };
    ASSERT_EQ(map->size(), 56U + 600U);
    EXPECT_EQ(cell(2, 77), 254);
    EXPECT_EQ(cell(2, 76), 1);
    EXPECT_EQ(cell(4, 0), 0) << "rank 4 never reported";
    EXPECT_EQ(cell(5, 0), 255);
    EXPECT_EQ(cell(5, 1), 0);
    ask.rows = 2;
    const auto small =
        make_heatmap(fed.source, ask, fed.history.tail(0, {0, 1, 2, 3, 4, 5}).rows());
    ASSERT_TRUE(small);
    EXPECT_EQ(field<std::uint32_t>(*small, 8), 2U);
    EXPECT_EQ(field<std::uint32_t>(*small, 20), 3U);
    EXPECT_EQ(static_cast<unsigned char>(small->at(56 + 77)), 254);
}

TEST(Heatmap, StepsThatARestartHasUndoneAreNoPartOfIt) {
    Fed fed;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        std::vector<RowOf> reports;
        for (std::int64_t step = 0; step < 50; ++step) {
            reports.push_back({step, 0, 2.0});
        }
        fed.add(reports, 1000, {1, 1}, rank);
    }
    fed.store();
    fed.add({{0, 1, 3.0}, {1, 1, 3.0}}, 1000, {1, 2}, 0);
    fed.add({{0, 1, 1.0}, {1, 1, 1.0}, {2, 1, 1.0}}, 1000, {1, 2}, 1);
    HeatmapAsk ask;
    ask.metric = "loss";
    ask.rank_high = 1;
    ask.columns = 100;
    const auto map = make_heatmap(fed.source, ask, fed.history.tail(0, {0, 1}).rows());
    ASSERT_TRUE(map);
    ASSERT_EQ(field<std::uint32_t>(*map, 8), 2U);
    ASSERT_EQ(field<std::uint32_t>(*map, 12), 3U);
    const std::string wanted{'\xFE', '\xFE', '\0', '\x01', '\x01', '\x01'};
    EXPECT_EQ(map->substr(56), wanted);
}

}  // namespace
}  // namespace lockstep::telemetry
