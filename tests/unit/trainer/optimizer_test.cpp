#include "job/trainer/optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr double kRate = 0.1;

// Three steps from {1, −2, 0.5} with gradients t · {0.1, −0.3, 0.7}.
std::vector<float> after_three_steps(OptimizerOptions options, std::vector<FlatRange> layers) {
    std::vector<float> parameters{1.0F, -2.0F, 0.5F};
    Optimizer optimizer{options, parameters.size(), std::move(layers)};
    for (int t = 1; t <= 3; ++t) {
        const auto factor = static_cast<float>(t);
        // As sums over two ranks: the scale makes the mean of them.
        const std::vector<float> sums{0.2F * factor, -0.6F * factor, 1.4F * factor};
        optimizer.step(parameters, sums, 0.5F, kRate);
    }
    EXPECT_EQ(optimizer.steps(), 3);
    return parameters;
}

struct Known {
    OptimizerOptions options;
    std::vector<double> want;

    friend void PrintTo(const Known& one, std::ostream* out) { *out << one.want.front(); }
};

class OptimizerIsPyTorchs : public testing::TestWithParam<Known> {};

// The numbers are what torch.optim 1.13 makes of the same steps.
TEST_P(OptimizerIsPyTorchs, WithWeightDecay) {
    const std::vector<float> got = after_three_steps(GetParam().options, {{0, 3}});
    for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(got[i]), GetParam().want[i], 5e-6) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, OptimizerIsPyTorchs,
    testing::Values(Known{{TrainOptimizer::adam, 0.0, 0.1}, {0.7016783, -1.703059, 0.2068275}},
                    Known{{TrainOptimizer::adamw, 0.0, 0.1}, {0.6809359, -1.6512349, 0.1957864}},
                    Known{{TrainOptimizer::sgd, 0.9, 0.1}, {0.849858, -1.605195, -0.1894575}}),
    [](const auto& each) { return std::string{to_string(each.param.options.kind)}; });

class OptimizerHolds : public testing::TestWithParam<TrainOptimizer> {};

// A checkpoint is written from the moments themselves, not from a copy.
TEST_P(OptimizerHolds, WhatItShowsWhileItsStepsAreTheSame) {
    constexpr std::size_t kCount = 10'001;  // three blocks, the last one odd
    const OptimizerOptions options{GetParam(), 0.9, 0.01};
    const std::vector<FlatRange> layers{{0, 6'000}, {6'000, kCount - 6'000}};
    Optimizer plain{options, kCount, layers};
    Optimizer holding{options, kCount, layers};
    std::vector<float> want(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
        want[i] = std::sin(static_cast<float>(i));
    }
    std::vector<float> got = want;
    std::vector<float> gradients(kCount);
    std::span<const float> held;
    std::vector<float> copy;
    for (int step = 0; step < 9; ++step) {
        if (step % 4 == 1) {
            held = holding.hold();
            copy.assign(held.begin(), held.end());
            EXPECT_EQ(holding.hold().data(), held.data()) << "twice before a step";
        }
        for (std::size_t i = 0; i < kCount; ++i) {
            gradients[i] = std::cos(static_cast<float>(i + static_cast<std::size_t>(step)));
        }
        plain.step(want, gradients, 0.5F, kRate);
        holding.step(got, gradients, 0.5F, kRate);
        ASSERT_EQ(got, want) << step;
        ASSERT_TRUE(std::ranges::equal(holding.state(), plain.state())) << step;
        ASSERT_TRUE(std::ranges::equal(held, copy)) << step;
    }
    EXPECT_FALSE(std::ranges::equal(held, holding.state()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerHolds,
                         testing::Values(TrainOptimizer::adam, TrainOptimizer::adamw,
                                         TrainOptimizer::sgd, TrainOptimizer::lamb),
                         [](const auto& each) { return std::string{to_string(each.param)}; });

// LAMB: each layer goes rate · ‖x‖ along its AdamW direction, whatever the direction's length.
TEST(Optimizer, LambMovesEveryLayerByItsOwnNorm) {
    std::vector<float> parameters{3.0F, 4.0F, 0.0F, 0.0F, 0.5F};
    const std::vector<float> before = parameters;
    Optimizer optimizer{{TrainOptimizer::lamb, 0.0, 0.0}, 5, {{0, 2}, {2, 2}, {4, 1}}};
    optimizer.step(parameters, std::vector<float>{1e-3F, 1e-3F, 5.0F, -5.0F, -1e3F}, 1.0F, kRate);
    // Adam's first direction is the gradient's sign.
    const double length = std::hypot(parameters[0] - before[0], parameters[1] - before[1]);
    EXPECT_NEAR(length, kRate * 5.0, 1e-4);
    EXPECT_NEAR(parameters[0] - before[0], parameters[1] - before[1], 1e-5);
    EXPECT_NEAR(parameters[2], -kRate, 1e-5);  // a layer of zeros has no norm: a plain step
    EXPECT_NEAR(parameters[3], kRate, 1e-5);
    EXPECT_NEAR(parameters[4], 0.5 + kRate * 0.5, 1e-5);
}

TEST(Optimizer, TheRateWarmsUpAndThenFollowsItsSchedule) {
    TrainConfig config;
    config.warmup_steps = 4;
    const auto rate = [&](std::int64_t step) { return learning_rate_at(config, 2.0, step, 14); };
    EXPECT_DOUBLE_EQ(rate(1), 0.5);
    EXPECT_DOUBLE_EQ(rate(4), 2.0);
    EXPECT_DOUBLE_EQ(rate(5), 2.0);
    EXPECT_DOUBLE_EQ(rate(14), 2.0);
    config.schedule = TrainSchedule::linear;
    EXPECT_DOUBLE_EQ(rate(5), 2.0);
    EXPECT_DOUBLE_EQ(rate(10), 1.0);
    EXPECT_NEAR(rate(14), 0.2, 1e-12);
    EXPECT_DOUBLE_EQ(rate(20), 0.0);  // a run that became longer than was planned
    config.schedule = TrainSchedule::cosine;
    EXPECT_DOUBLE_EQ(rate(5), 2.0);
    EXPECT_NEAR(rate(10), 1.0, 1e-12);
    EXPECT_LT(rate(14), 0.06);
    config.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(rate(1), 2.0);
}

TEST(Optimizer, ClippingKeepsTheDirectionAndLimitsTheNorm) {
    EXPECT_DOUBLE_EQ(clip_factor(5.0, 0.0), 1.0);
    EXPECT_DOUBLE_EQ(clip_factor(5.0, 10.0), 1.0);
    EXPECT_DOUBLE_EQ(clip_factor(5.0, 1.0), 0.2);
}

}  // namespace
}  // namespace lockstep
