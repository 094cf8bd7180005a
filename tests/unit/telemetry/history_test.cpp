// size: codec, chunk, scan and heatmap share one source of data
#include "daemon/telemetry/series/history.hpp"

#include "daemon/telemetry/series/heatmap.hpp"
#include "daemon/telemetry/series/history_scan.hpp"
#include "tests/unit/telemetry/names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

namespace lockstep::telemetry {
namespace {

std::uint64_t bits(double value) {
    return std::bit_cast<std::uint64_t>(value);
}

class MemorySource final : public HistorySource {
  public:
    void add(Chunk chunk) {
        ChunkMeta meta;
        meta.id = static_cast<std::int64_t>(chunks_.size()) + 1;
        meta.block = chunk.block;
        meta.start = chunk.start;
        meta.step_low = chunk.step_low;
        meta.step_high = chunk.step_high;
        meta.time_low = chunk.time_low;
        meta.time_high = chunk.time_high;
        metas_.push_back(meta);
        chunks_.push_back(std::move(chunk));
    }
    Result<std::vector<ChunkMeta>> chunks(std::uint32_t low, std::uint32_t high) override {
        std::vector<ChunkMeta> out;
        for (const ChunkMeta& meta : metas_) {
            if (meta.block >= low && meta.block <= high) {
                out.push_back(meta);
            }
        }
        return out;
    }
    Result<std::optional<std::string>> section(std::int64_t chunk, std::string_view name,
                                               std::uint8_t level) override {
        for (const Section& one : chunks_[static_cast<std::size_t>(chunk - 1)].sections) {
            if (one.name == name && one.level == level) {
                ++read_[level];
                return one.data;
            }
        }
        return std::optional<std::string>{};
    }
    std::vector<Chunk> chunks_;
    std::vector<ChunkMeta> metas_;
    std::map<std::uint8_t, int> read_;
};

struct RowOf {
    std::int64_t step;
    double time;
    double value;
};

// Reports of one rank through History, a chunk per `per_chunk` of them, the rest left open.
struct Fed {
    MemorySource source;
    History history;
    ColumnCodec codec;
    void add(const std::vector<RowOf>& reports, std::size_t per_chunk, Start start = {1, 1},
             std::uint32_t rank = 0) {
        std::size_t count = 0;
        for (const RowOf& one : reports) {
            history.add(start, rank, one.step, one.time, {one.value}, 0);
            if (++count % per_chunk == 0) {
                store();
            }
        }
    }
    void store() {
        const auto sealed = history.seal();
        for (const auto& rows : sealed) {
            source.add(encode_chunk(*rows, kNames, codec).value());
        }
        history.stored(sealed.size(), 0);
    }
    std::vector<RankHistory> ask(HistoryAsk ask) {
        auto out = fold_series(source, ask, history.tail(0, ask.entities).rows());
        EXPECT_TRUE(out.has_value());
        return *out;
    }
};

HistoryAsk question(std::size_t columns, std::vector<std::uint32_t> ranks = {0}) {
    HistoryAsk ask;
    ask.metric = "loss";
    ask.entities = std::move(ranks);
    ask.columns = columns;
    return ask;
}

TEST(ColumnCodec, GivesBackEveryBit) {
    std::mt19937_64 random{1};
    ColumnCodec codec;
    for (int kind = 0; kind < 6; ++kind) {
        for (const std::size_t count : {0U, 1U, 2U, 7U, 1000U}) {
            std::vector<std::uint64_t> values(count);
            std::uint64_t at = random();
            for (auto& value : values) {
                at += kind == 0 ? 1 : kind == 1 ? random() % 5 : random();
                value = kind == 3 ? bits(static_cast<double>(at % 97) / 7) : kind == 4 ? 42 : at;
                value = kind == 5 ? static_cast<std::uint64_t>(-1) : value;
            }
            std::string out;
            codec.pack(values, out);
            std::string_view in = out;
            std::vector<std::uint64_t> back;
            ASSERT_TRUE(codec.unpack(in, count, back));
            EXPECT_EQ(back, values);
            EXPECT_TRUE(in.empty());
            in = out;
            EXPECT_FALSE(codec.unpack(in, count + 1, back));
        }
    }
}

TEST(ColumnCodec, RegularStepsTakeNearlyNothing) {
    std::vector<std::uint64_t> steps(10'000);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        steps[i] = 1'000'000 + 10 * i;
    }
    ColumnCodec codec;
    std::string out;
    codec.pack(steps, out);
    EXPECT_LT(out.size(), 200U);
}

HistoryRows some_rows(std::uint32_t seed, std::size_t count) {
    std::mt19937 random{seed};
    HistoryRows rows;
    rows.block = 2;
    rows.start = {1, 3};
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<double> values{std::normal_distribution<double>{}(random), kAbsent};
        if (random() % 50 == 0) {
            values[0] = random() % 2 == 0 ? kNan : -kInf;
        }
        if (random() % 9 == 0) {
            values[0] = kAbsent;
        }
        if (random() % 20 == 0) {
            values[1] = static_cast<double>(i);
        }
        rows.add(128 + random() % 64, random() % 30 == 0 ? -1 : static_cast<std::int64_t>(i),
                 1e9 + 0.25 * static_cast<double>(i), values);
    }
    return rows;
}

const std::string* section_of(const Chunk& chunk, std::string_view name, std::uint8_t level) {
    for (const Section& one : chunk.sections) {
        if (one.name == name && one.level == level) {
            return &one.data;
        }
    }
    return nullptr;
}

TEST(HistoryChunk, GivesBackEveryRowBitForBit) {
    ColumnCodec codec;
    const HistoryRows rows = some_rows(3, 5000);
    const Chunk chunk = encode_chunk(rows, kNames, codec).value();
    const auto entities = decode_rows(*section_of(chunk, kRowsSection, 0));
    ASSERT_TRUE(entities);
    const auto steps = decode_steps(*section_of(chunk, kStepSection, 0), rows.rows(), codec);
    const auto times = decode_times(*section_of(chunk, kTimeSection, 0), rows.rows(), codec);
    ASSERT_TRUE(steps && times);
    for (std::size_t metric = 0; metric < 2; ++metric) {
        const auto values =
            decode_values(*section_of(chunk, kNames[metric], 0), rows.rows(), codec);
        ASSERT_TRUE(values);
        std::map<std::uint32_t, std::uint32_t> next;
        for (const EntityRows& one : *entities) {
            next[one.entity] = one.begin;
        }
        for (std::size_t i = 0; i < rows.rows(); ++i) {
            const std::uint32_t at = next[rows.entities[i]]++;
            EXPECT_EQ((*steps)[at], rows.steps[i]);
            EXPECT_EQ((*times)[at], rows.times[i]);
            const auto& column = rows.columns[metric];
            ASSERT_EQ(bits((*values)[at]), bits(i < column.size() ? column[i] : kAbsent));
        }
        for (const EntityRows& one : *entities) {
            EXPECT_EQ(next[one.entity], one.end);
        }
    }
}

TEST(HistoryChunk, ADamagedSectionIsAnErrorAndNeverACrash) {
    ColumnCodec codec;
    const Chunk chunk = encode_chunk(some_rows(4, 3000), kNames, codec).value();
    std::mt19937 random{9};
    std::size_t refused = 0;
    std::size_t tried = 0;
    const auto look = [&](const Section& one) {
        bool good = true;
        if (one.name == kRowsSection) {
            good = decode_rows(one.data).has_value();
        } else if (one.name == kStepSection) {
            good = decode_steps(one.data, 3000, codec).has_value();
        } else if (one.name == kTimeSection) {
            good = decode_times(one.data, 3000, codec).has_value();
        } else if (one.level == kNonfiniteLevel) {
            decode_nonfinite(one.data, 64);
            return;  // no checksum: any value in it may be one
        } else if (one.level > 0) {
            good = decode_level(one.data, 64, codec).has_value();
        } else {
            good = decode_values(one.data, 3000, codec).has_value();
        }
        ++tried;
        refused += good ? 0 : 1;
    };
    for (const Section& one : chunk.sections) {
        for (int i = 0; i < 400; ++i) {
            Section bad = one;
            if (i % 3 == 0) {
                bad.data.resize(random() % bad.data.size());
            } else {
                auto& byte = bad.data[random() % std::min<std::size_t>(bad.data.size(), 200)];
                byte = static_cast<char>(byte ^ static_cast<char>(1U << (random() % 8)));
            }
            look(bad);
        }
        look(Section{one.name, one.level, ""});
    }
    // What a flip may leave valid is the byte that says how differences were taken.
    EXPECT_GT(static_cast<double>(refused), 0.95 * static_cast<double>(tried));
}

// Such rows are in logs of older versions. SQLite takes a NaN for NULL, and the column takes none.
TEST(HistoryChunk, ARowWithoutATimeLeavesTheChunksTimesWhatTheStoreTakes) {
    ColumnCodec codec;
    HistoryRows rows = some_rows(5, 100);
    rows.times[0] = kNan;
    rows.times[7] = kInf;
    rows.times[99] = kNan;
    const Chunk some = encode_chunk(rows, kNames, codec).value();
    EXPECT_EQ(some.time_low, rows.times[1]);
    EXPECT_EQ(some.time_high, rows.times[98]);
    std::fill(rows.times.begin(), rows.times.end(), kNan);
    const Chunk none = encode_chunk(rows, kNames, codec).value();
    EXPECT_EQ(none.time_low, 0);
    EXPECT_EQ(none.time_high, 0);
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
