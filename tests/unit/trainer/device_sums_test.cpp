// Gradients summed over ranks in several buckets, as the ranks of GPUs have them: here on the CPU,
// over Gloo. And training without graphs, where the sums run beside backward; and what else runs
// beside it.
#include "job/trainer/strategies/device_sums.hpp"

#include "job/trainer/cuda_device.hpp"
#include "job/trainer/device.hpp"
#include "job/trainer/model.hpp"
#include "tests/unit/trainer/training.hpp"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace lockstep {
namespace {

// While it lives forward and backward are launched operation by operation. No other thread runs
// when it comes and goes.
class WithoutGraphs {
  public:
    WithoutGraphs() { ::setenv("LOCKSTEP_TRAIN_GRAPHS", "0", 1); }
    ~WithoutGraphs() { ::unsetenv("LOCKSTEP_TRAIN_GRAPHS"); }
    WithoutGraphs(const WithoutGraphs&) = delete;
    WithoutGraphs& operator=(const WithoutGraphs&) = delete;
};

class DeviceSumsOf : public testing::TestWithParam<TrainAllReduce> {};

// `as_a_graph`: backward calls no hook of the buckets, as the launch of a graph does not.
void sum_one_step(Communicator& communicator, FlatParameters& parameters, DeviceSums& sums,
                  float factor, bool as_a_graph) {
    at::Tensor flat = parameters.flat_gradients();
    flat.zero_();
    flat.narrow(0, flat.numel() - 1, 1).fill_(communicator.rank() == 1 ? 1.0 : 0.0);
    sums.begin();
    const auto backward = [&] {
        at::Tensor loss = at::scalar_tensor(0.0F);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            loss = loss + parameters[i].sum() * factor * static_cast<float>(i + 1);
        }
        loss.backward();
    };
    if (as_a_graph) {
        backward();
        EXPECT_EQ(sums.summed(), 0U);
        sums.arm();
    } else {
        sums.arm();
        backward();
        EXPECT_EQ(sums.summed(), sums.buckets()) << "beside backward, not behind it";
    }
    DeviceWait wait{communicator, at::kCPU, DeviceWait::GiveUp::on_loss};
    const Status summed = sums.finish(wait);
    ASSERT_TRUE(summed.has_value()) << summed.error().text();
    ASSERT_TRUE(wait.until_done({}).has_value());
    ASSERT_TRUE(sums.found_wrong().has_value());
    EXPECT_EQ(sums.summed(), sums.buckets());
}

TEST_P(DeviceSumsOf, EachBucketAndTheFlagAreSumsInEveryStep) {
    constexpr std::size_t kParameters = 5;
    as_ranks(2, [](Communicator& communicator) {
        FlatParameters parameters{
            {{"a", {100}}, {"b", {40, 2}}, {"c", {7}}, {"d", {64}}, {"e", {3}}}, 0};
        DeviceSums sums{communicator, nullptr, parameters, GetParam(), 64 * sizeof(float)};
        EXPECT_EQ(sums.buckets(), 3U);
        for (int step = 1; step <= 4; ++step) {
            const auto mine = static_cast<float>(step * (communicator.rank() + 1));
            sum_one_step(communicator, parameters, sums, mine, /*as_a_graph=*/step % 2 == 0);
            for (std::size_t i = 0; i < kParameters; ++i) {
                const float want = 3.0F * static_cast<float>(step) * static_cast<float>(i + 1);
                EXPECT_EQ(parameters[i].grad().min().item<float>(), want) << i;
                EXPECT_EQ(parameters[i].grad().max().item<float>(), want) << i;
            }
            EXPECT_EQ(parameters.flag(), 1.0F);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceSumsOf,
                         testing::Values(TrainAllReduce::ring, TrainAllReduce::reduce_to_one));

TrainConfig some_steps(TrainModel model) {
    TrainConfig config;
    config.model = model;
    config.epochs = 2;
    config.max_steps = 8;
    config.batch_size = 16;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    return config;
}

void expect_like(const Trained& other, const Trained& own, double tolerance) {
    ASSERT_TRUE(own.ends[0].has_value()) << own.ends[0].error().text();
    ASSERT_TRUE(other.ends[0].has_value()) << other.ends[0].error().text();
    expect_same(other.mean_losses(), own.mean_losses(), tolerance);
    for (std::size_t rank = 1; rank < other.weights.size(); ++rank) {
        EXPECT_EQ(other.weights[rank], other.weights[0]);
    }
}

// 7.5 million parameters: two buckets of the shipped size.
TEST(DeviceWay, TwoRanksWithoutGraphsSumTwoBucketsAndHaveTheLossesOfTheCpusOwnWay) {
    TrainConfig config = some_steps(TrainModel::alexnet_split);
    config.max_steps = 3;
    config.batch_size = 8;
    TrainingOptions options;
    options.ranks = 2;
    const Trained own = train_in_world(config, few_digits(), options);
    const PortableTraining portably;
    const WithoutGraphs eagerly;
    const Trained other = train_in_world(config, few_digits(), options);
    expect_like(other, own, 2e-3);
    ASSERT_GT(other.weights[0].size() * sizeof(float), DeviceSums::kBucketBytes);
}

TEST(DeviceWay, WithoutGraphsIsAsWithThem) {
    const TrainConfig config = some_steps(TrainModel::mlp);
    TrainingOptions options;
    options.ranks = 2;
    const PortableTraining portably;
    const Trained graphs = train_in_world(config, few_digits(), options);
    const WithoutGraphs eagerly;
    expect_like(train_in_world(config, few_digits(), options), graphs, 1e-6);
}

TEST(DeviceWay, WithoutGraphsOnARealGpuIsAsWithThem) {
    if (cuda_device::visible() == 0) {
        GTEST_SKIP() << "needs a GPU: " << cuda_device::none_because();
    }
    TrainConfig config = some_steps(TrainModel::mlp);
    config.dropout = 0.0;
    TrainingOptions options;
    options.gpus = {0};
    const Trained graphs = train_in_world(config, few_digits(), options);
    const WithoutGraphs eagerly;
    expect_like(train_in_world(config, few_digits(), options), graphs, 1e-3);
}

// The next batch was copied behind the step, whose stream it went to.
TEST(SideStream, OnARealGpuABatchArrivesWhileTheStepIsComputed) {
    if (cuda_device::visible() == 0) {
        GTEST_SKIP() << "needs a GPU: " << cuda_device::none_because();
    }
    const at::NoGradGuard no_gradients;
    const at::Device gpu{at::kCUDA, 0};
    use_device(gpu);
    const auto never = [] { return false; };
    const at::Tensor batch = at::arange(1 << 18, at::kFloat);
    const at::Tensor factor = at::full({8192, 8192}, 1.0 / 8192, at::kFloat).to(gpu);
    at::Tensor product = at::mm(factor, factor);
    cuda_device::SideStream copies;
    cuda_device::Mark step;
    cuda_device::Mark arrived;
    at::Tensor there;
    const auto copy = [&] {
        there = to_device(batch, gpu);
        arrived.set();
    };
    copies.run(copy);  // memory is taken from CUDA, which may wait for the GPU
    ASSERT_TRUE(arrived.wait(never));
    there = at::Tensor{};
    ASSERT_TRUE(cuda_device::finished(never));
    for (int i = 0; i < 100; ++i) {  // a second and more
        product = at::mm(product, factor);
    }
    step.set();
    copies.run(copy);
    EXPECT_TRUE(arrived.wait(never));
    EXPECT_FALSE(step.wait([] { return true; })) << "it came behind the step, or that was short";
    copies.current_waits();
    cuda_device::SideStream::current_uses(there);
    EXPECT_TRUE(at::equal(there.to(at::kCPU), batch));
    EXPECT_TRUE(step.wait(never));
}

}  // namespace
}  // namespace lockstep
