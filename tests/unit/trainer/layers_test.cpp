#include "job/trainer/layers.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

bool close(const at::Tensor& a, const at::Tensor& b, double tolerance) {
    return at::allclose(a, b, tolerance, tolerance);
}

at::Tensor leaf(const at::Tensor& values) {
    return values.clone().requires_grad_(true);
}

struct Images {
    std::int64_t batch;
    std::int64_t channels;
    std::int64_t side;
};

class NormRelu : public testing::TestWithParam<Images> {
  protected:
    void SetUp() override {
        at::manual_seed(3);
        const Images& p = GetParam();
        x_ = (at::randn({p.batch, p.channels, p.side, p.side}) * 2 + 5).contiguous(kLast);
        beta_ = at::randn({p.channels});
        moments_ = at::zeros({moments_size(p.channels)});
        moments_.narrow(0, p.channels, p.channels).fill_(1.0);
    }
    // relu(batch_norm(x)) by LibTorch's own layers; {y, ∂x, ∂beta}. Sets upstream_.
    std::vector<at::Tensor> reference(const at::Tensor& mean, const at::Tensor& variance,
                                      bool training) {
        at::Tensor x = leaf(x_);
        at::Tensor beta = leaf(beta_);
        const at::Tensor z = at::batch_norm(x, at::ones_like(beta_), beta, mean, variance, training,
                                            0.01, kNormEpsilon, false);
        // No gradient where rounding decides on which side of the ReLU's corner a value is.
        upstream_ = at::randn(z.sizes()) * z.detach().abs().gt(1e-4).to(at::kFloat);
        const at::Tensor y = at::relu(z);
        y.backward(upstream_);
        return {y.detach(), x.grad(), beta.grad()};
    }
    std::vector<at::Tensor> fused(bool training) {
        at::Tensor x = leaf(x_);
        at::Tensor beta = leaf(beta_);
        const at::Tensor y = norm_relu(x, beta, moments_, training);
        y.backward(upstream_.defined() ? upstream_ : at::ones_like(y));
        return {y.detach(), x.grad(), beta.grad()};
    }

    at::Tensor x_;
    at::Tensor beta_;
    at::Tensor upstream_;
    at::Tensor moments_;
};

TEST_P(NormRelu, EqualsLibTorchInTraining) {
    const auto want = reference({}, {}, true);
    const auto got = fused(true);
    EXPECT_TRUE(close(got[0], want[0], 2e-5));
    EXPECT_TRUE(close(got[1], want[1], 2e-5));
    EXPECT_TRUE(close(got[2], want[2], 2e-4));
}

TEST_P(NormRelu, EqualsLibTorchWithMovingMoments) {
    const std::int64_t channels = GetParam().channels;
    const at::Tensor mean = at::randn({channels}) + 5;
    const at::Tensor variance = at::rand({channels}) + 0.5;
    moments_.narrow(0, 0, channels).copy_(mean);
    moments_.narrow(0, channels, channels).copy_(variance);  // moved 0 times: taken as they are
    const at::Tensor before = moments_.clone();
    const auto want = reference(mean, variance, false);
    const auto got = fused(false);
    EXPECT_TRUE(close(got[0], want[0], 2e-5));
    EXPECT_TRUE(close(got[1], want[1], 2e-5));
    EXPECT_TRUE(close(got[2], want[2], 2e-4));
    EXPECT_TRUE(at::equal(moments_, before));
}

TEST_P(NormRelu, MovesTheMomentsAsKerasDoes) {
    const std::int64_t channels = GetParam().channels;
    fused(true);
    const at::Tensor mean = x_.mean({0, 2, 3});
    const at::Tensor variance = x_.var({0, 2, 3}, /*unbiased=*/false);
    EXPECT_TRUE(close(moments_.narrow(0, 0, channels), mean * 0.01, 1e-5));
    EXPECT_TRUE(close(moments_.narrow(0, channels, channels), variance * 0.01 + 0.99, 1e-5));
    EXPECT_EQ(moments_[2 * channels].item<float>(), 1.0F);
}

TEST_P(NormRelu, TheStartOfTheMovingMomentsDoesNotCount) {
    for (int i = 0; i < 5; ++i) {
        fused(true);  // the same batch five times: its moments are the only ones ever seen
    }
    const auto training = fused(true);
    const auto evaluation = fused(false);
    EXPECT_TRUE(close(evaluation[0], training[0], 1e-3));
}

INSTANTIATE_TEST_SUITE_P(Shapes, NormRelu,
                         testing::Values(Images{64, 12, 28}, Images{5, 24, 12}, Images{3, 32, 6},
                                         Images{1, 7, 3}));

TEST(ConvSame, GivesTensorFlowsOutputSizesAndPadding) {
    at::manual_seed(1);
    struct Case {
        std::int64_t side, kernel, stride, out;
    };
    for (const Case& c : {Case{28, 3, 1, 28}, Case{12, 6, 2, 6}, Case{28, 6, 2, 14},
                          Case{7, 2, 2, 4}, Case{5, 4, 1, 5}}) {
        const at::Tensor x = at::randn({2, 3, c.side, c.side});
        const at::Tensor weight = at::randn({4, 3, c.kernel, c.kernel});
        const at::Tensor got = conv_same(x, weight, {}, c.stride);
        EXPECT_EQ(got.size(2), c.out);
        EXPECT_EQ(got.size(3), c.out);
        const std::int64_t total =
            std::max<std::int64_t>((c.out - 1) * c.stride + c.kernel - c.side, 0);
        const std::int64_t first = total / 2;
        const at::Tensor padded =
            at::constant_pad_nd(x, {first, total - first, first, total - first});
        EXPECT_TRUE(close(got, at::conv2d(padded, weight, {}, c.stride), 1e-4));
    }
}

TEST(ConvSame, AnOddPaddingPutsMoreAtTheEnd) {
    // 2 × 2 kernel on 3 pixels, stride 1: one row of padding, below and to the right.
    const at::Tensor got = conv_same(at::ones({1, 1, 3, 3}), at::ones({1, 1, 2, 2}), {}, 1);
    const at::Tensor want = at::tensor({4., 4., 2., 4., 4., 2., 2., 2., 1.}, at::kFloat);
    EXPECT_TRUE(at::equal(got.flatten(), want));
}

TEST(Dropout, ScalesWhatIsKeptAlsoInTheGradient) {
    const at::Tensor x = leaf(at::ones({100, 10}));
    const at::Tensor y = lockstep::dropout(x, 0.5, 9);
    y.sum().backward();
    EXPECT_TRUE(at::equal(y.detach(), x.grad()));
    EXPECT_TRUE(at::equal(y.detach().max(), at::scalar_tensor(2.0F)));
    EXPECT_NEAR(y.mean().item<float>(), 1.0F, 0.2F);
    EXPECT_TRUE(at::equal(lockstep::dropout(x, 0.5, 9), y));
    EXPECT_FALSE(at::equal(lockstep::dropout(x, 0.5, 10), y));
}

TEST(Dense, EqualsLibTorchsLinear) {
    at::manual_seed(5);
    for (const std::int64_t batch : {1, 7, 64}) {
        const at::Tensor values = at::randn({batch, 32});
        const at::Tensor upstream = at::randn({batch, 10});
        std::vector<at::Tensor> results;
        for (const bool ours : {true, false}) {
            const at::Tensor x = leaf(values);
            at::manual_seed(6);
            const at::Tensor weight = leaf(at::randn({10, 32}));
            const at::Tensor bias = leaf(at::randn({10}));
            const at::Tensor y = ours ? dense(x, weight, bias) : at::linear(x, weight, bias);
            y.backward(upstream);
            for (const at::Tensor& each : {y.detach(), x.grad(), weight.grad(), bias.grad()}) {
                results.push_back(each);
            }
        }
        for (std::size_t i = 0; i < 4; ++i) {
            EXPECT_TRUE(close(results[i], results[i + 4], 1e-4)) << batch << " " << i;
        }
    }
}

// What the strategies hand out: the gradient's place is there before the backward pass, and a
// second one adds to it.
TEST(Dense, AddsTheGradientOfTheWeightsToWhereItIsKept) {
    at::manual_seed(4);
    const at::Tensor x = at::randn({5, 3});
    const at::Tensor values = at::randn({2, 3});
    at::Tensor plain = leaf(values);
    at::Tensor kept = leaf(values);
    const at::Tensor place = at::zeros({2, 3});
    kept.mutable_grad() = place;
    const at::Tensor none = at::zeros({2});
    at::linear(x, plain, none).pow(2).sum().backward();
    for (int time = 1; time <= 2; ++time) {
        dense(x, kept, none).pow(2).sum().backward();
        EXPECT_EQ(kept.grad().data_ptr(), place.data_ptr());
        EXPECT_TRUE(close(place, plain.grad() * time, 1e-5)) << time;
    }
}

class PoolRelu : public testing::TestWithParam<std::vector<std::int64_t>> {};

TEST_P(PoolRelu, EqualsThePoolingOfTheRelu) {
    at::manual_seed(6);
    // Of few values, so that a window often has the largest twice.
    const at::Tensor values = at::randint(-3, 4, GetParam()).to(at::kFloat).contiguous(kLast);
    const auto pooled = [](const at::Tensor& x) {
        return at::max_pool2d(at::relu(x), {3, 3}, {2, 2}, {1, 1});
    };
    at::Tensor want_x = leaf(values);
    at::Tensor got_x = leaf(values);
    const at::Tensor want = pooled(want_x);
    const at::Tensor got = pool_relu(got_x);
    ASSERT_EQ(got.sizes(), want.sizes());
    EXPECT_TRUE(got.equal(want));
    const at::Tensor upstream = at::randn(want.sizes());
    want.backward(upstream);
    got.backward(upstream);
    EXPECT_TRUE(close(got_x.grad(), want_x.grad(), 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Sizes, PoolRelu,
                         testing::Values(std::vector<std::int64_t>{1, 1, 1, 1},
                                         std::vector<std::int64_t>{2, 3, 2, 5},
                                         std::vector<std::int64_t>{2, 20, 7, 7},
                                         std::vector<std::int64_t>{3, 96, 28, 28}));

TEST(PoolRelu, WhatIsNoNumberStaysThat) {
    at::Tensor x = at::full({1, 1, 5, 5}, -1.0);
    x[0][0][1][1] = std::numeric_limits<float>::quiet_NaN();
    x[0][0][1][2] = 8.0;
    const at::Tensor y = pool_relu(x);
    EXPECT_TRUE(y[0][0][0][0].isnan().item<bool>());
    EXPECT_TRUE(y[0][0][1][1].isnan().item<bool>());
    EXPECT_EQ(y[0][0][2][2].item<float>(), 0.0F);
    EXPECT_EQ(y[0][0][0][1].isnan().item<bool>(), true);
}

TEST(GlobalAverage, IsTheMeanOverThePixelsWithItsGradient) {
    at::manual_seed(2);
    const at::Tensor values = at::randn({5, 32, 6, 6}).contiguous(kLast);
    const at::Tensor x = leaf(values);
    const at::Tensor upstream = at::randn({5, 32});
    const at::Tensor y = global_average(x);
    y.backward(upstream);
    EXPECT_TRUE(close(y, values.mean({2, 3}), 1e-5));
    EXPECT_TRUE(close(x.grad(), (upstream / 36.0).view({5, 32, 1, 1}).expand_as(values), 1e-6));
}

}  // namespace
}  // namespace lockstep
