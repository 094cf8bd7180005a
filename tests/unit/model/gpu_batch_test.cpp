#include "job/model/wire/gpu_batch.hpp"

#include "job/base/limits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep {
namespace {

GpuBatch sample_gpu_batch() {
    GpuBatch batch;
    batch.node_rank = 3;
    batch.time = 1234.5;
    for (std::uint32_t i = 0; i < 8; ++i) {
        GpuSample gpu;
        gpu.gpu = i;
        gpu.uuid = "GPU-" + std::to_string(i);
        gpu.model = "H100";
        gpu.driver = "570";
        gpu.pci_bus_id = "0000:01";
        gpu[GpuMetric::utilization] = i / 8.0;
        if (i != 2) {
            gpu[GpuMetric::power] = 100.0 + i;
        }
        batch.gpus.push_back(gpu);
    }
    batch.uses = {{9, 1, 5e9}, {4, 7, kGpuUnknown}};
    batch.xids = {{2, 79, 1200}};
    return batch;
}

TEST(GpuBatches, ReadBackWithWhatIsUnknown) {
    const auto again = decode_gpu_batch(encode_gpu_batch(sample_gpu_batch()));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->node_rank, 3U);
    EXPECT_EQ(again->time, 1234.5);
    ASSERT_EQ(again->gpus.size(), 8U);
    EXPECT_EQ(again->gpus[7].uuid, "GPU-7");
    EXPECT_EQ(again->gpus[7].model, "H100");
    EXPECT_EQ(again->gpus[7].driver, "570");
    EXPECT_EQ(again->gpus[7].pci_bus_id, "0000:01");
    EXPECT_EQ(again->gpus[4][GpuMetric::utilization], 0.5);
    EXPECT_EQ(again->gpus[3][GpuMetric::power], 103);
    EXPECT_TRUE(std::isnan(again->gpus[2][GpuMetric::power]));
    EXPECT_TRUE(std::isnan(again->gpus[2][GpuMetric::energy]));
    ASSERT_EQ(again->uses.size(), 2U);
    EXPECT_EQ(again->uses[0].rank, 4U) << "sorted by rank";
    EXPECT_TRUE(std::isnan(again->uses[0].memory_bytes));
    EXPECT_EQ(again->uses[1].memory_bytes, 5e9);
    ASSERT_EQ(again->xids.size(), 1U);
    EXPECT_EQ(again->xids[0].xid, 79U);
    EXPECT_EQ(again->xids[0].time, 1200);
}

TEST(GpuBatches, EveryMetricTravelsUnderAKeyOfItsOwn) {
    GpuBatch batch;
    batch.gpus.resize(1);
    for (std::size_t i = 0; i < kGpuMetrics; ++i) {
        batch.gpus[0].values[i] = static_cast<double>(i);
    }
    const auto again = decode_gpu_batch(encode_gpu_batch(batch));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->gpus[0].values, batch.gpus[0].values);
}

TEST(GpuBatches, AKeyOfANewerAgentIsLeftOut) {
    std::string bytes = encode_gpu_batch(sample_gpu_batch());
    const auto at = bytes.find("power_watts");
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, 5, "watts");
    const auto again = decode_gpu_batch(bytes);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_TRUE(std::isnan(again->gpus[3][GpuMetric::power]));
    EXPECT_EQ(again->gpus[4][GpuMetric::utilization], 0.5);
}

TEST(GpuBatches, TruncatedAnywhereAreRefused) {
    const std::string whole = encode_gpu_batch(sample_gpu_batch());
    EXPECT_TRUE(is_gpu_batch(whole));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_FALSE(decode_gpu_batch(std::string_view{whole}.substr(0, size)).has_value()) << size;
    }
    EXPECT_FALSE(decode_gpu_batch(whole + "x").has_value());
    EXPECT_FALSE(is_gpu_batch("LSB1"));
    EXPECT_FALSE(is_gpu_batch("LS"));
}

TEST(GpuBatches, SurviveRandomDamage) {
    const std::string whole = encode_gpu_batch(sample_gpu_batch());
    std::mt19937 random{7};
    std::size_t read = 0;
    for (int i = 0; i < 20'000; ++i) {
        std::string damaged = whole;
        for (int n = 0; n < 3; ++n) {
            damaged[random() % damaged.size()] = static_cast<char>(random());
        }
        if (const auto batch = decode_gpu_batch(damaged)) {
            ++read;
            EXPECT_LE(batch->gpus.size(), static_cast<std::size_t>(limits::kGpusPerNode));
            for (const GpuSample& gpu : batch->gpus) {
                for (const double value : gpu.values) {
                    EXPECT_FALSE(std::isinf(value));
                }
            }
        }
    }
    EXPECT_GT(read, 100U) << "damage to a number is not noticed";
}

TEST(GpuBatches, HugeCountsAndRepeatedGpusAreRefused) {
    for (const std::size_t at : {20U, 24U, 28U}) {
        std::string header = encode_gpu_batch(GpuBatch{});
        header[at + 2] = static_cast<char>(0xff);
        EXPECT_EQ(decode_gpu_batch(header).error().message, "GPU frame: too much of something");
    }
    GpuBatch twice = sample_gpu_batch();
    twice.gpus[1].gpu = 0;
    EXPECT_FALSE(decode_gpu_batch(encode_gpu_batch(twice)).has_value());
}

TEST(GpuBatches, WhatExceedsTheLimitsIsLeftOut) {
    GpuBatch batch = sample_gpu_batch();
    batch.uses.resize(limits::kGpuUses + 5);
    batch.gpus[0].model = std::string(500, 'x');
    const auto again = decode_gpu_batch(encode_gpu_batch(batch));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->uses.size(), limits::kGpuUses);
    EXPECT_EQ(again->gpus[0].model.size(), limits::kGpuTextBytes);
}

}  // namespace
}  // namespace lockstep
