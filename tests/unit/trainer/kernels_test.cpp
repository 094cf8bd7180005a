#include "job/trainer/kernels.hpp"

#include "job/trainer/optimizer.hpp"
#include "job/trainer/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

std::vector<float> noise(std::size_t count, std::uint64_t seed, float low = -1, float high = 1) {
    Random random{seed};
    std::vector<float> out(count);
    std::generate(out.begin(), out.end(), [&] { return random.uniform(low, high); });
    return out;
}

TEST(Kernels, RescaleDividesBy255) {
    std::vector<std::uint8_t> in{0, 1, 128, 255};
    std::vector<float> out(4);
    kernels::rescale(in.data(), out.data(), 4);
    EXPECT_FLOAT_EQ(out[1], 1.0F / 255.0F);
    EXPECT_FLOAT_EQ(out[3], 1.0F);
}

TEST(Kernels, LanesHoldWholeRows) {
    EXPECT_EQ(kernels::lanes(12), 48U);
    EXPECT_EQ(kernels::lanes(24), 48U);
    EXPECT_EQ(kernels::lanes(32), 32U);
    EXPECT_EQ(kernels::lanes(1), 16U);
}

// Rows that do not fill the last row of lanes, and more than one block.
class LaneKernels : public testing::TestWithParam<std::size_t> {};

TEST_P(LaneKernels, SumsAreThoseOfASimpleLoop) {
    const std::size_t lanes = 48;
    const std::size_t count = GetParam();
    const std::vector<float> x = noise(count, 1);
    const std::vector<float> g = noise(count, 2);
    const std::vector<float> shift = noise(lanes, 3);
    const std::vector<float> scale = noise(lanes, 4);
    const std::vector<float> offset = noise(lanes, 5);
    std::vector<double> sum(lanes, 99);
    std::vector<double> square(lanes, 99);
    std::vector<double> gradient(lanes, 99);
    std::vector<double> product(lanes, 99);
    kernels::lane_sums(x.data(), count, lanes, shift.data(), sum.data(), square.data());
    kernels::relu_gradient_sums(x.data(), g.data(), count, lanes, scale.data(), offset.data(),
                                shift.data(), gradient.data(), product.data());
    std::vector<double> want(4 * lanes, 0.0);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t j = i % lanes;
        const double d = static_cast<double>(x[i]) - static_cast<double>(shift[j]);
        const double pass = x[i] * scale[j] + offset[j] > 0 ? static_cast<double>(g[i]) : 0.0;
        want[j] += d;
        want[lanes + j] += d * d;
        want[2 * lanes + j] += pass;
        want[3 * lanes + j] += pass * d;
    }
    for (std::size_t j = 0; j < lanes; ++j) {
        const double near = 1e-6 * static_cast<double>(count) / lanes + 1e-6;
        EXPECT_NEAR(sum[j], want[j], near);
        EXPECT_NEAR(square[j], want[lanes + j], near);
        EXPECT_NEAR(gradient[j], want[2 * lanes + j], near);
        EXPECT_NEAR(product[j], want[3 * lanes + j], near);
    }
}

TEST_P(LaneKernels, ElementwiseResultsAreThoseOfASimpleLoop) {
    const std::size_t lanes = 48;
    const std::size_t count = GetParam();
    const std::vector<float> x = noise(count, 1);
    const std::vector<float> g = noise(count, 2);
    const std::vector<float> scale = noise(lanes, 4);
    const std::vector<float> offset = noise(lanes, 5);
    const std::vector<float> slope = noise(lanes, 6);
    const std::vector<float> constant = noise(lanes, 7);
    std::vector<float> y(count);
    std::vector<float> out(count);
    kernels::scale_relu(x.data(), y.data(), count, lanes, scale.data(), offset.data());
    kernels::relu_gradient(x.data(), g.data(), out.data(), count, lanes, scale.data(),
                           offset.data(), slope.data(), constant.data());
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t j = i % lanes;
        const float value = x[i] * scale[j] + offset[j];
        ASSERT_NEAR(y[i], std::max(value, 0.0F), 1e-6F) << i;
        if (std::abs(value) > 1e-6F) {
            const float pass = value > 0 ? g[i] : 0.0F;
            ASSERT_NEAR(out[i], pass * scale[j] + x[i] * slope[j] + constant[j], 1e-5F) << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Counts, LaneKernels,
                         testing::Values(12, 36, 48, 60, 48 * 64, 48 * 200 + 24));

TEST(Kernels, DropoutKeepsTheMeanAndRepeatsForTheSameKey) {
    std::vector<float> mask(20'000);
    std::vector<float> again(mask.size());
    kernels::dropout_mask(mask.data(), mask.size(), 5, 0.3F);
    kernels::dropout_mask(again.data(), again.size(), 5, 0.3F);
    EXPECT_EQ(mask, again);
    kernels::dropout_mask(again.data(), again.size(), 6, 0.3F);
    EXPECT_NE(mask, again);
    const auto dropped = std::count(mask.begin(), mask.end(), 0.0F);
    EXPECT_NEAR(static_cast<double>(dropped), 6000.0, 300.0);  // σ = 65
    EXPECT_NEAR(*std::max_element(mask.begin(), mask.end()), 1.0F / 0.7F, 1e-6F);
}

TEST(Optimizer, AdamIsTheAlgorithmOfThePaper) {
    const std::size_t count = 37;
    std::vector<float> parameters = noise(count, 1);
    std::vector<double> want(parameters.begin(), parameters.end());
    std::vector<double> m(count, 0.0);
    std::vector<double> v(count, 0.0);
    Optimizer optimizer{{TrainOptimizer::adam, 0.0, 0.0}, count, {}};
    for (int t = 1; t <= 20; ++t) {
        const std::vector<float> sums = noise(count, static_cast<std::uint64_t>(t) + 10);
        optimizer.step(parameters, sums, 0.25F, 0.01);
        for (std::size_t i = 0; i < count; ++i) {
            const double g = static_cast<double>(sums[i]) * 0.25;
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            want[i] -= 0.01 * (m[i] / (1 - std::pow(0.9, t))) /
                       (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
        }
    }
    EXPECT_EQ(optimizer.steps(), 20);
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_NEAR(static_cast<double>(parameters[i]), want[i], 2e-6);
    }
}

TEST(Optimizer, SgdKeepsAVelocity) {
    std::vector<float> parameters{1.0F, 2.0F};
    Optimizer optimizer{{TrainOptimizer::sgd, 0.5, 0.0}, 2, {}};
    optimizer.step(parameters, std::vector<float>{2.0F, -4.0F}, 0.5F, 0.1);
    EXPECT_FLOAT_EQ(parameters[0], 0.9F);
    EXPECT_FLOAT_EQ(parameters[1], 2.2F);
    optimizer.step(parameters, std::vector<float>{0.0F, 0.0F}, 0.5F, 0.1);
    EXPECT_FLOAT_EQ(parameters[0], 0.85F);
    EXPECT_FLOAT_EQ(parameters[1], 2.3F);
}

}  // namespace
}  // namespace lockstep
