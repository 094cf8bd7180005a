#include "job/agent/ranks/telemetry_buffer.hpp"

#include "job/base/limits.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

RankReport report(std::int64_t step, const std::string& name, double value) {
    RankReport out;
    out.step = step;
    out.time = 1;
    out.metrics.emplace_back(name, value);
    return out;
}

TEST(TelemetryBuffer, BatchesAreNumberedFromOneAndCarryTheGeneration) {
    TelemetryBuffer buffer{3};
    buffer.set_generation(2);
    EXPECT_FALSE(buffer.take());
    EXPECT_TRUE(buffer.add(12, report(5, "loss", 0.5)));
    const auto first = buffer.take();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->seq, 1U);
    EXPECT_EQ(first->generation, 2U);
    EXPECT_EQ(first->node_rank, 3U);
    EXPECT_EQ(first->ranks[0], 12U);
    EXPECT_EQ(first->find("loss")->values[0], 0.5);
    buffer.add(12, report(6, "loss", 0.25));
    EXPECT_EQ(buffer.take()->seq, 2U);
    EXPECT_FALSE(buffer.take());
}

TEST(TelemetryBuffer, AFullBatchMustBeTakenFirst) {
    TelemetryBuffer buffer{0};
    for (std::size_t i = 0; i < limits::kBatchRows; ++i) {
        ASSERT_TRUE(buffer.add(0, report(1, "loss", 1)));
    }
    EXPECT_TRUE(buffer.full());
    EXPECT_FALSE(buffer.add(0, report(1, "loss", 1)));
    EXPECT_EQ(buffer.take()->rows(), limits::kBatchRows);
    EXPECT_TRUE(buffer.add(0, report(1, "loss", 1)));
}

TEST(TelemetryBuffer, NamesBeyondTheLimitOfAJobAreLeftOutAndCounted) {
    TelemetryBuffer buffer{0};
    for (std::size_t i = 0; i < limits::kMetricsPerJob + 3; ++i) {
        buffer.add(0, report(1, "m" + std::to_string(i), 1));
    }
    buffer.add(0, report(2, "m0", 7));
    const auto batch = buffer.take();
    EXPECT_EQ(buffer.refused_values(), 3U);
    EXPECT_EQ(batch->columns.size(), limits::kMetricsPerJob);
    EXPECT_EQ(batch->rows(), limits::kMetricsPerJob + 4);
    EXPECT_TRUE(decode_batch(encode_batch(*batch)));
}

}  // namespace
}  // namespace lockstep
