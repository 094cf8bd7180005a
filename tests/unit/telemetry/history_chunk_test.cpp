// Columns and chunks of history, there and back.
#include "daemon/telemetry/series/history.hpp"
#include "tests/unit/telemetry/names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace lockstep::telemetry {
namespace {

std::uint64_t bits(double value) {
    return std::bit_cast<std::uint64_t>(value);
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

}  // namespace
}  // namespace lockstep::telemetry
