#include "job/model/wire/batch.hpp"

#include "job/base/limits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace lockstep {
namespace {

Batch sample_batch() {
    Batch batch;
    batch.seq = 7;
    batch.generation = 2;
    batch.node_rank = 1;
    for (int i = 0; i < 11; ++i) {
        batch.add_row(static_cast<std::uint32_t>(i % 2), i, 1000.0 + i);
        if (i != 3) {
            batch.set("loss", i == 5 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / (1 + i));
        }
        if (i > 8) {
            batch.set("accuracy", 0.5);
        }
    }
    return batch;
}

TEST(Batches, ReadBackWithAbsentAndNonFiniteValuesApart) {
    const auto again = decode_batch(encode_batch(sample_batch()));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->seq, 7U);
    EXPECT_EQ(again->rows(), 11U);
    const BatchColumn* loss = again->find("loss");
    ASSERT_NE(loss, nullptr);
    EXPECT_EQ(loss->present[3], 0);
    EXPECT_EQ(loss->present[5], 1);
    EXPECT_TRUE(std::isnan(loss->values[5]));
    EXPECT_EQ(loss->values[4], 0.2);
    EXPECT_EQ(again->find("accuracy")->present[0], 0);
    EXPECT_EQ(again->find("accuracy")->present[10], 1);
}

TEST(Batches, TruncatedAnywhereAreRefused) {
    const std::string whole = encode_batch(sample_batch());
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_FALSE(decode_batch(std::string_view{whole}.substr(0, size)).has_value()) << size;
    }
    EXPECT_FALSE(decode_batch(whole + "x").has_value());
}

TEST(Batches, SurviveRandomDamage) {
    const std::string whole = encode_batch(sample_batch());
    std::mt19937 random{7};
    for (int i = 0; i < 20'000; ++i) {
        std::string damaged = whole;
        for (int n = 0; n < 3; ++n) {
            damaged[random() % damaged.size()] = static_cast<char>(random());
        }
        if (const auto batch = decode_batch(damaged)) {
            EXPECT_LE(batch->rows(), limits::kBatchRows);
        }
    }
}

// One such time made the store refuse every write after it, at every start.
TEST(Batches, ATimeThatIsNoneIsRefused) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const double time :
         {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity, -1.0, 1.1e12}) {
        Batch batch = sample_batch();
        batch.times[4] = time;
        const auto read = decode_batch(encode_batch(batch));
        ASSERT_FALSE(read.has_value()) << time;
        EXPECT_EQ(read.error().message, "batch: a time that is none");
    }
    Batch batch = sample_batch();
    batch.times[4] = 1e12;
    batch.times[5] = 0;
    EXPECT_TRUE(decode_batch(encode_batch(batch)).has_value());
}

TEST(Batches, StepsThatOverflowDifferencesAreBroughtIntoRange) {
    Batch batch = sample_batch();
    batch.steps[0] = std::numeric_limits<std::int64_t>::min();
    batch.steps[1] = std::numeric_limits<std::int64_t>::max();
    const auto read = decode_batch(encode_batch(batch));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->steps[0], -1);
    EXPECT_EQ(read->steps[1], std::int64_t{1} << 62U);
    EXPECT_EQ(read->steps[2], 2);
}

TEST(Batches, HugeCountsDoNotAllocate) {
    std::string header = encode_batch(Batch{});
    header[24] = static_cast<char>(0xff);
    header[25] = static_cast<char>(0xff);
    header[26] = static_cast<char>(0xff);
    EXPECT_EQ(decode_batch(header).error().message, "batch: too many rows or columns");
}

TEST(MetricNames, AreLowerCaseWords) {
    EXPECT_TRUE(is_metric_name("grad_norm2"));
    for (const char* name : {"", "Loss", "2x", "_x", "a-b", "a b", "\xc3\xa4"}) {
        EXPECT_FALSE(is_metric_name(name)) << name;
    }
    EXPECT_FALSE(is_metric_name(std::string(65, 'a')));
}

}  // namespace
}  // namespace lockstep
