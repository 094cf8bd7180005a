// Strategies of several devices as GPUs compute them, of LibTorch's operations: on the CPU beside
// the CPU's own way, and on a real GPU where there is one.
#include "job/trainer/cuda_device.hpp"
#include "job/trainer/device.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

struct SharedWay {
    const char* name;
    TrainModel model;
    TrainStrategy strategy;
    std::int32_t ranks;
    void (*set)(TrainConfig&, TrainingOptions&);

    friend void PrintTo(const SharedWay& way, std::ostream* out) { *out << way.name; }
};

TrainConfig twelve_steps(const SharedWay& way, TrainingOptions& options) {
    TrainConfig config;
    config.model = way.model;
    config.strategy = way.strategy;
    config.epochs = 3;
    config.max_steps = 12;
    config.batch_size = 32;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    config.weight_decay = 0.01;
    config.gradient_clip = 1.0;
    options.ranks = way.ranks;
    way.set(config, options);
    return config;
}

void expect_trained_alike(const Trained& other, const Trained& own, double tolerance) {
    for (const Trained* one : {&own, &other}) {
        for (const Result<RunEnd>& end : one->ends) {
            ASSERT_TRUE(end.has_value()) << end.error().text();
        }
    }
    expect_same(other.mean_losses(), own.mean_losses(), tolerance);
    for (std::size_t rank = 0; rank < own.steps.size(); ++rank) {
        if (!own.steps[rank].empty()) {
            EXPECT_NEAR(other.steps[rank][5].gradient_norm / own.steps[rank][5].gradient_norm, 1.0,
                        std::max(10 * tolerance, 0.01));
            EXPECT_NEAR(other.ends[rank]->test_loss, own.ends[rank]->test_loss,
                        std::max(tolerance, 0.02));
        }
    }
    ASSERT_EQ(other.weights[0].size(), own.weights[0].size());
    double apart = 0.0;
    for (std::size_t i = 0; i < own.weights[0].size(); ++i) {
        apart += std::abs(double{other.weights[0][i]} - own.weights[0][i]);
    }
    // Adam's steps are as long as the rate where a gradient is next to nothing.
    EXPECT_LE(apart, std::max(10 * tolerance, 0.002) * static_cast<double>(own.weights[0].size()));
}

double tolerance_of(const SharedWay& way) {
    return way.model == TrainModel::mlp ? 1e-4 : 2e-3;
}

class StrategyAsOnGpus : public testing::TestWithParam<SharedWay> {};

TEST_P(StrategyAsOnGpus, HasTheLossesOfTheCpusOwnWay) {
    TrainingOptions options;
    const TrainConfig config = twelve_steps(GetParam(), options);
    const Trained own = train_in_world(config, few_digits(), options);
    const PortableTraining portably;
    options.apart = config.strategy == TrainStrategy::pipeline;
    const Trained other = train_in_world(config, few_digits(), options);
    expect_trained_alike(other, own, tolerance_of(GetParam()));
}

// A server computes nothing: only those who train must be alike.
TEST(ParameterServer, WorkersAreComparedWithEachOtherAndNotWithServersThatHaveNoGpu) {
    as_worlds(3, 1, [](World& world) {
        if (world.rank() == 1) {
            world.use_gpus({0}, {});
        }
        TrainConfig config;
        config.strategy = TrainStrategy::parameter_server;
        TrainingRun run{config, few_digits(), world, {}};
        const Status ready = run.prepare();
        ASSERT_FALSE(ready.has_value());
        EXPECT_EQ(ready.error().code, Errc::conflict);
        EXPECT_TRUE(ready.error().message.starts_with(
            "rank 2 computes on the CPU, rank 1 on a GPU: one of them was given none"))
            << ready.error().message;
    });
}

// There and back: what the one has written the other goes on with.
TEST_P(StrategyAsOnGpus, GoesOnFromACheckpointOfTheCpuAndTheCpuFromItsOwn) {
    TrainingOptions options;
    TrainConfig config = twelve_steps(GetParam(), options);
    const Trained straight = train_in_world(config, few_digits(), options);
    const TemporaryFolder folder;
    options.checkpoints = folder.path();
    config.max_steps = 4;
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends.back().has_value());
    {
        const PortableTraining portably;
        config.max_steps = 8;
        const Trained second = train_in_world(config, few_digits(), options);
        ASSERT_TRUE(second.ends.back().has_value()) << second.ends.back().error().text();
        EXPECT_EQ(second.ends.back()->resumed_from, 4);
    }
    config.max_steps = 12;
    const Trained third = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(third.ends.back().has_value()) << third.ends.back().error().text();
    EXPECT_EQ(third.ends.back()->resumed_from, 8);
    const std::vector<double> all = straight.mean_losses();
    expect_same(third.mean_losses(), {all.begin() + 8, all.end()}, tolerance_of(GetParam()));
}

// Of one process, and of workers, which send each other nothing: several ranks that do are several
// processes (gpu.native_gpu). Two replicas share the GPU.
TEST_P(StrategyAsOnGpus, OnARealGpuItHasThemToo) {
    if (cuda_device::visible() == 0) {
        GTEST_SKIP() << "needs a GPU: " << cuda_device::none_because();
    }
    TrainingOptions options;
    TrainConfig config = twelve_steps(GetParam(), options);
    config.dropout = 0.0;  // other random numbers
    if (config.strategy == TrainStrategy::pipeline) {
        options.ranks = 1;
        config.stages = 1;
    }
    at::globalContext().setAllowTF32CuDNN(false);
    const Trained own = train_in_world(config, few_digits(), options);
    options.gpus.assign(static_cast<std::size_t>(config.replicas), 0);
    const Trained gpu = train_in_world(config, few_digits(), options);
    at::globalContext().setAllowTF32CuDNN(true);
    expect_trained_alike(gpu, own, std::max(20 * tolerance_of(GetParam()), 0.01));
}

constexpr auto kFlat = TrainModel::mlp;
constexpr auto kImages = TrainModel::mnist_convnet;

INSTANTIATE_TEST_SUITE_P(
    Strategies, StrategyAsOnGpus,
    testing::Values(SharedWay{"replicated", kImages, TrainStrategy::replicated, 1,
                              [](TrainConfig& config, TrainingOptions&) { config.replicas = 2; }},
                    SharedWay{"replicated_lamb", kFlat, TrainStrategy::replicated, 1,
                              [](TrainConfig& config, TrainingOptions&) {
                                  config.replicas = 3;
                                  config.optimizer = TrainOptimizer::lamb;
                                  config.accumulate = 2;
                              }},
                    SharedWay{"central_storage", kImages, TrainStrategy::central_storage, 1,
                              [](TrainConfig& config, TrainingOptions&) { config.replicas = 2; }},
                    SharedWay{"parameter_server", kImages, TrainStrategy::parameter_server, 3,
                              [](TrainConfig&, TrainingOptions& options) { options.servers = 1; }},
                    SharedWay{"parameter_servers", kFlat, TrainStrategy::parameter_server, 4,
                              [](TrainConfig& config, TrainingOptions& options) {
                                  options.servers = 2;
                                  config.gradient_clip = 0.0;
                                  config.optimizer = TrainOptimizer::sgd;
                                  config.learning_rate = 0.05;
                              }},
                    SharedWay{"pipeline", kImages, TrainStrategy::pipeline, 3,
                              [](TrainConfig&, TrainingOptions&) {}},
                    SharedWay{"pipelines_in_parallel", kFlat, TrainStrategy::pipeline, 4,
                              [](TrainConfig& config, TrainingOptions&) {
                                  config.stages = 2;
                                  config.batch_size = 16;
                                  config.accumulate = 2;
                              }}),
    [](const auto& each) { return std::string{each.param.name}; });

TEST(TrainingHash, ARunGoesOnOnTheCpuAndWithAnotherNumberOfGpus) {
    TrainConfig config;
    config.strategy = TrainStrategy::replicated;
    config.devices = TrainDevices::cpu;
    const std::string cpu = training_hash(config);
    config.replicas = 2;
    EXPECT_NE(training_hash(config), cpu) << "cpu:0,1, as older versions have it";
    config.devices = TrainDevices::automatic;
    config.replicas = 4;  // so many GPUs were found
    EXPECT_EQ(training_hash(config), cpu);
    config.devices = TrainDevices::gpu;
    config.gpus = {3, 1};
    config.replicas = 2;
    EXPECT_EQ(training_hash(config), cpu);
}

TEST(ChooseDevice, ARankTakesTheGpuInItsPlaceAndAReplicatedOneAll) {
    using Gpus = std::vector<std::int32_t>;
    RankContext third;
    third.socket = "/run/agent";
    third.local_rank = 2;
    TrainConfig config;
    EXPECT_EQ(*gpus_of_rank(config, third, 4, ""), (Gpus{2}));
    config.gpus = {3, 1, 0};
    EXPECT_EQ(*gpus_of_rank(config, third, 4, ""), (Gpus{0}));
    config.gpus = {3, 1};
    const auto beyond = gpus_of_rank(config, third, 4, "");
    ASSERT_FALSE(beyond.has_value());
    EXPECT_EQ(beyond.error().message, "train.devices names 2 GPUs, and none for LOCAL_RANK 2");
    config.gpus = {};
    const auto missing = gpus_of_rank(config, third, 2, "4,5");
    ASSERT_FALSE(missing.has_value());
    EXPECT_NE(missing.error().message.find("no GPU 2: this process sees 2"), std::string::npos);
    // Its own share is all that a worker sees; so is what srun shows a task.
    config.strategy = TrainStrategy::parameter_server;
    EXPECT_EQ(*gpus_of_rank(config, third, 1, ""), (Gpus{0}));
    RankContext task;
    task.local_rank = 2;
    EXPECT_EQ(*gpus_of_rank({}, task, 1, ""), (Gpus{0}));
    for (const TrainStrategy several :
         {TrainStrategy::replicated, TrainStrategy::central_storage}) {
        TrainConfig all;
        all.strategy = several;
        EXPECT_EQ(*gpus_of_rank(all, {}, 3, ""), (Gpus{0, 1, 2}));
        all.gpus = {2, 0};
        EXPECT_EQ(*gpus_of_rank(all, {}, 3, ""), (Gpus{2, 0}));
        all.gpus = {2, 3};
        EXPECT_FALSE(gpus_of_rank(all, {}, 3, "").has_value());
        all.gpus = {};
        all.batch_size = 2;
        const auto many = gpus_of_rank(all, {}, 3, "");
        ASSERT_FALSE(many.has_value());
        EXPECT_NE(many.error().message.find("3 GPUs for a batch_size of 2"), std::string::npos);
    }
}

}  // namespace
}  // namespace lockstep
