// fp16: real numbers of half precision, which overflow beyond 65504 and vanish below 6e-8. The
// specification refuses fp16 on the CPU; here values and gradients are rounded to it.
#include "job/trainer/loss_scale.hpp"

#include "job/trainer/layers.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

TEST(LossScaler, AStepThatOverflowsIsLeftOutAndTheScaleHalved) {
    LossScaler scaler{true};
    EXPECT_EQ(scaler.scale(), 65'536.0);
    EXPECT_TRUE(*scaler.use(true));
    EXPECT_FALSE(*scaler.use(false));
    EXPECT_FALSE(*scaler.use(false));
    EXPECT_EQ(scaler.state(), (LossScale{16'384.0, 0, 2}));
}

TEST(LossScaler, ItIsDoubledAfterTwoThousandGoodStepsInARowUpToALimit) {
    LossScaler scaler{true};
    const auto good = [&](std::int64_t steps) {
        for (std::int64_t i = 0; i < steps; ++i) {
            EXPECT_TRUE(*scaler.use(true));
        }
    };
    good(1'999);
    EXPECT_FALSE(*scaler.use(false));
    good(1'999);
    EXPECT_EQ(scaler.scale(), 32'768.0);
    good(1);
    EXPECT_EQ(scaler.scale(), 65'536.0);
    good(2'000 * 20);
    EXPECT_EQ(scaler.scale(), LossScaler::kScaleMax);
}

TEST(LossScaler, WhatNoScaleHelpsIsAnError) {
    LossScaler scaler{true};
    for (double scale = 65'536.0; scale > 1.0; scale /= 2.0) {
        ASSERT_FALSE(*scaler.use(false));
    }
    EXPECT_EQ(scaler.scale(), 1.0);
    const Result<bool> end = scaler.use(false);
    ASSERT_FALSE(end.has_value());
    EXPECT_NE(end.error().message.find("the scale is down to 1"), std::string::npos);
}

TEST(LossScaler, WithoutFp16NothingIsScaledOrLeftOut) {
    LossScaler scaler{false};
    EXPECT_EQ(scaler.scale(), 1.0);
    EXPECT_TRUE(*scaler.use(false));
    EXPECT_EQ(scaler.state(), LossScale{});
}

TEST(LossScaler, HalfPrecisionOverflowsAndVanishesAsItDoes) {
    at::Tensor x = at::tensor({65'504.0F, 65'520.0F, 1e-8F, 1.0001F});
    x.requires_grad_(true);
    const at::Tensor y = through_half(x);
    const std::vector<float> got(y.data_ptr<float>(), y.data_ptr<float>() + 4);
    EXPECT_EQ(got,
              (std::vector<float>{65'504.0F, std::numeric_limits<float>::infinity(), 0.0F, 1.0F}));
    y.backward(at::tensor({1e-8F, 1e-8F * 65'536.0F, 70'000.0F, 2.0F}));
    const float* gradient = x.grad().data_ptr<float>();
    EXPECT_EQ(gradient[0], 0.0F);  // lost without a scale, kept with one
    EXPECT_NEAR(gradient[1] / 65'536.0F, 1e-8F, 1e-11F);
    EXPECT_TRUE(std::isinf(gradient[2]));
}

TrainConfig in_half(TrainStrategy strategy) {
    TrainConfig config;
    config.model = TrainModel::mlp;
    config.precision = TrainPrecision::fp16;
    config.strategy = strategy;
    config.dropout = 0.0;
    config.epochs = 1;
    config.batch_size = 32;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    return config;
}

struct HalfWay {
    TrainStrategy strategy;
    std::int32_t ranks;
    std::int32_t servers;
    std::int32_t batch_size;
    TrainUpdate update = TrainUpdate::sync;
};

// Leaves a checkpoint of step 1 whose scale has been doubled too far.
void begin_with_a_large_scale(TrainConfig config, const TrainingOptions& options) {
    config.max_steps = 1;
    for (const Result<RunEnd>& end : train_in_world(config, few_digits(), options).ends) {
        ASSERT_TRUE(end.has_value()) << end.error().text();
    }
    const auto found = latest_checkpoint(options.checkpoints);
    ASSERT_TRUE(found.has_value() && found->has_value());
    Checkpoint state = (*found)->checkpoint;
    EXPECT_EQ(state.loss_scale, (LossScale{65'536.0, 1, 0}));
    state.loss_scale.scale = LossScaler::kScaleMax;
    ASSERT_TRUE(write_checkpoint(options.checkpoints, state).has_value());
}

// Gradients of a loss that is scaled too far are beyond half precision: those steps are left out,
// on all ranks alike, and then it learns as with 32 bits.
TEST(Fp16, EveryStrategyLeavesOutTheStepsThatOverflowAndLearns) {
    TrainConfig full = in_half(TrainStrategy::single);
    full.precision = TrainPrecision::fp32;
    const Trained with_32_bits = train_in_world(full, few_digits(), {});
    for (const HalfWay& way :
         {HalfWay{TrainStrategy::single, 1, 0, 32}, HalfWay{TrainStrategy::data_parallel, 2, 0, 16},
          HalfWay{TrainStrategy::replicated, 1, 0, 32}, HalfWay{TrainStrategy::pipeline, 2, 0, 32},
          HalfWay{TrainStrategy::parameter_server, 4, 2, 16},
          HalfWay{TrainStrategy::parameter_server, 2, 1, 32, TrainUpdate::async}}) {
        SCOPED_TRACE(std::string{to_string(way.strategy)} + " of " + std::to_string(way.ranks));
        const TemporaryFolder folder;
        TrainConfig config = in_half(way.strategy);
        config.batch_size = way.batch_size;
        config.update = way.update;
        config.replicas = way.strategy == TrainStrategy::replicated ? 2 : 1;
        TrainingOptions options;
        options.ranks = way.ranks;
        options.servers = way.servers;
        options.checkpoints = folder.path();
        begin_with_a_large_scale(config, options);
        const Trained half = train_in_world(config, few_digits(), options);
        std::vector<bool> skipped;
        for (std::size_t rank = 0; rank < half.ends.size(); ++rank) {
            ASSERT_TRUE(half.ends[rank].has_value()) << half.ends[rank].error().text();
            if (half.steps[rank].empty()) {
                continue;
            }
            std::vector<bool> mine;
            for (const StepResult& step : half.steps[rank]) {
                mine.push_back(step.skipped);
            }
            skipped = skipped.empty() ? mine : skipped;
            EXPECT_EQ(mine, skipped) << rank;
            EXPECT_EQ(half.ends[rank]->skipped_steps, std::count(mine.begin(), mine.end(), true));
            EXPECT_GT(half.ends[rank]->skipped_steps, 0);
            EXPECT_LT(half.ends[rank]->skipped_steps, 12);
        }
        ASSERT_EQ(skipped.size(), 19U);
        EXPECT_TRUE(skipped.front());
        EXPECT_FALSE(skipped.back());
        EXPECT_LT(half.mean_losses().back(), half.mean_losses().front() - 0.2);
        EXPECT_NEAR(half.mean_losses().back(), with_32_bits.losses().back(), 0.5);
    }
}

// Scale, steps without an overflow and the optimizer's count of real steps are in the checkpoint.
TEST(Fp16, AResumeGoesOnWithItsScale) {
    const TemporaryFolder folder;
    TrainConfig config = in_half(TrainStrategy::single);
    TrainingOptions options;
    options.checkpoints = folder / "straight";
    begin_with_a_large_scale(config, options);
    const Trained straight = train_in_world(config, few_digits(), options);
    options.checkpoints = folder / "twice";
    begin_with_a_large_scale(config, options);
    config.max_steps = 8;
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
    const auto found = latest_checkpoint(options.checkpoints);
    ASSERT_TRUE(found.has_value() && found->has_value());
    EXPECT_LT((*found)->checkpoint.loss_scale.scale, LossScaler::kScaleMax);
    EXPECT_GT((*found)->checkpoint.loss_scale.skipped, 0);
    config.max_steps = 0;
    const Trained second = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(second.ends[0].has_value()) << second.ends[0].error().text();
    EXPECT_EQ(second.ends[0]->resumed_from, 8);
    EXPECT_EQ(second.weights[0], straight.weights[0]);
    EXPECT_EQ(second.ends[0]->skipped_steps, straight.ends[0]->skipped_steps);
}

}  // namespace
}  // namespace lockstep
