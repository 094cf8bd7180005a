#include "job/trainer/reducer.hpp"

#include "job/trainer/layers.hpp"
#include "tests/unit/trainer/ranks.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <semaphore>
#include <span>
#include <vector>

namespace lockstep {
namespace {

std::vector<ParameterSpec> three() {
    return {{"a", {100}}, {"b", {40, 2}}, {"c", {7}}};
}

bool never() {
    return false;
}

// A loss whose gradient is `factor` for every element of every parameter.
at::Tensor loss_of(const FlatParameters& parameters, float factor) {
    at::Tensor sum = at::scalar_tensor(0.0F);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        sum = sum + parameters[i].sum() * factor;
    }
    return sum;
}

void expect_gradient(const FlatParameters& parameters, float want) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(parameters[i].grad().min().item<float>(), want) << i;
        EXPECT_EQ(parameters[i].grad().max().item<float>(), want) << i;
    }
}

class ReducerWith : public testing::TestWithParam<std::size_t> {};

TEST_P(ReducerWith, GradientsAndFlagBecomeSumsInEveryStep) {
    as_ranks(3, [](Communicator& communicator) {
        FlatParameters parameters{three(), 0};
        GradientReducer reducer{communicator, parameters, GetParam()};
        for (int step = 1; step <= 5; ++step) {
            parameters.zero_gradients();
            parameters.flag() = communicator.rank() == 1 ? 1.0F : 0.0F;
            reducer.arm();
            const auto factor = static_cast<float>(step * (communicator.rank() + 1));
            loss_of(parameters, factor).backward();
            const Status done = reducer.finish(never);
            ASSERT_TRUE(done.has_value()) << done.error().text();
            expect_gradient(parameters, static_cast<float>(6 * step));
            EXPECT_EQ(parameters.flag(), 1.0F);
        }
    });
}

TEST_P(ReducerWith, ABackwardThatIsNotArmedOnlyAccumulates) {
    as_ranks(2, [](Communicator& communicator) {
        FlatParameters parameters{three(), 0};
        GradientReducer reducer{communicator, parameters, GetParam()};
        parameters.zero_gradients();
        loss_of(parameters, 1.0F).backward();
        loss_of(parameters, 1.0F).backward();
        expect_gradient(parameters, 2.0F);
        reducer.arm();
        loss_of(parameters, 1.0F).backward();
        ASSERT_TRUE(reducer.finish(never).has_value());
        expect_gradient(parameters, 6.0F);
    });
}

TEST_P(ReducerWith, AParameterTheLossDoesNotUseCountsAsZero) {
    as_ranks(2, [](Communicator& communicator) {
        FlatParameters parameters{three(), 0};
        GradientReducer reducer{communicator, parameters, GetParam()};
        parameters.zero_gradients();
        reducer.arm();
        (parameters[0].sum() * 2.0).backward();
        ASSERT_TRUE(reducer.finish(never).has_value());
        EXPECT_EQ(parameters[0].grad().min().item<float>(), 4.0F);
        EXPECT_EQ(parameters[2].grad().max().item<float>(), 0.0F);
    });
}

// One bucket for all, one per parameter, and the default.
INSTANTIATE_TEST_SUITE_P(BucketBytes, ReducerWith, testing::Values(1U << 20U, 4U, 0U));

// dense() adds its weights' gradient itself and gives LibTorch none; that they are final must be
// known all the same, or the sum would not run beside the backward pass.
TEST(Reducer, ADenseLayersGradientsAreSummedWithoutWaitingForTheEnd) {
    FlatParameters parameters{{{"kernel", {4, 3}, Start::ones}, {"bias", {4}}}, 0};
    std::counting_semaphore<> sums{0};
    GradientReducer reducer{2,
                            [&](std::span<float>) -> Status {
                                sums.release();
                                return {};
                            },
                            parameters, 4};
    parameters.zero_gradients();
    reducer.arm();
    dense(at::ones({2, 3}), parameters[0], parameters[1]).sum().backward();
    for (std::size_t bucket = 0; bucket < reducer.buckets(); ++bucket) {
        EXPECT_TRUE(sums.try_acquire_for(std::chrono::seconds{30})) << bucket;
    }
    ASSERT_TRUE(reducer.finish(never).has_value());
}

TEST(Reducer, SmallBucketsAreOnePerParameter) {
    as_ranks(2, [](Communicator& communicator) {
        FlatParameters parameters{three(), 0};
        EXPECT_EQ((GradientReducer{communicator, parameters, 4}).buckets(), 3U);
        FlatParameters others{three(), 0};
        EXPECT_EQ((GradientReducer{communicator, others, 1U << 20U}).buckets(), 1U);
    });
}

TEST(Reducer, ARankThatLeavesIsAnErrorOnTheOthers) {
    std::vector<Status> results(2);
    as_ranks(2, [&results](Communicator& communicator) {
        if (communicator.rank() == 1) {
            return;
        }
        FlatParameters parameters{three(), 0};
        GradientReducer reducer{communicator, parameters};
        reducer.arm();
        loss_of(parameters, 1.0F).backward();
        results[0] = reducer.finish(never);
    });
    ASSERT_FALSE(results[0].has_value());
    EXPECT_EQ(results[0].error().code, Errc::unavailable);
}

}  // namespace
}  // namespace lockstep
