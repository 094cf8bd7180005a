// A step that cannot be finished leaves nothing behind, the moving averages of its forward passes
// among it: the checkpoint that follows is that of the last finished step.
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

// A network with averages.
TrainConfig averaging(TrainStrategy strategy) {
    TrainConfig config;
    config.model = TrainModel::mnist_convnet;
    config.strategy = strategy;
    config.norm_mode = NormMode::train;
    config.dropout = 0.0;
    config.epochs = 1;
    config.batch_size = 32;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    return config;
}

struct StepWay {
    const char* name;
    TrainStrategy strategy;
    bool portably;
    std::int32_t servers;

    friend void PrintTo(const StepWay& way, std::ostream* out) { *out << way.name; }
};

class UnfinishedStep : public testing::TestWithParam<StepWay> {};

// An image of the second micro-batch cannot be read: what comes after is a checkpoint.
TEST_P(UnfinishedStep, LeavesTheAveragesAsTheyWere) {
    const StepWay& way = GetParam();
    TrainConfig config = averaging(way.strategy);
    config.replicas = way.strategy == TrainStrategy::replicated ? 2 : 1;
    const auto portably = way.portably ? std::make_unique<PortableTraining>() : nullptr;
    const TemporaryFolder folder;
    as_worlds(1 + way.servers, way.servers, [&](World& world) {
        const Dataset& data = few_digits();
        auto made = make_strategy(config, shape_of(data), world);
        ASSERT_TRUE(made.has_value()) << made.error().text();
        Strategy& strategy = **made;
        if (strategy.serves()) {
            EXPECT_TRUE(strategy.serve(folder.path()).has_value());
            return;
        }
        const auto state_now = [&] {
            Checkpoint state;
            EXPECT_TRUE(strategy.collect(state).has_value());
            return state;
        };
        Checkpoint start = state_now();
        ASSERT_TRUE(strategy.distribute(start).has_value());
        Loader loader{data.train, 32, 0};
        std::vector<std::uint32_t> order(48);
        std::iota(order.begin(), order.end(), 0U);
        loader.begin(std::move(order));
        const auto step = [&](std::int64_t number, std::int64_t samples) {
            StepResult result;
            result.step = number;
            result.samples = samples;
            result.learning_rate = 0.01;
            return strategy.step(loader, result);
        };
        ASSERT_TRUE(step(1, 32).has_value());
        const Checkpoint before = state_now();
        ASSERT_FALSE(before.buffers.empty());
        ASSERT_NE(before.buffers, start.buffers) << "a step moves them";
        ASSERT_FALSE(step(2, 64).has_value()) << "16 samples are left";
        const Checkpoint after = state_now();
        EXPECT_EQ(after.buffers, before.buffers);
        EXPECT_EQ(after.parameters, before.parameters);
        EXPECT_TRUE(strategy.finish().has_value());
    });
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, UnfinishedStep,
    testing::Values(StepWay{"single", TrainStrategy::single, false, 0},
                    StepWay{"single_as_on_gpus", TrainStrategy::single, true, 0},
                    StepWay{"replicated", TrainStrategy::replicated, false, 0},
                    StepWay{"parameter_server", TrainStrategy::parameter_server, false, 1}),
    [](const auto& each) { return std::string{each.param.name}; });

struct Gone {};

// A rank goes behind a step; the other one has computed the next when it notices.
TEST(LostRank, TheCheckpointAfterItIsThatOfARunThatEndsThere) {
    for (const bool portable : {false, true}) {
        SCOPED_TRACE(portable ? "as on GPUs" : "as on the CPU");
        const auto portably = portable ? std::make_unique<PortableTraining>() : nullptr;
        const TemporaryFolder folder;
        TrainConfig config = averaging(TrainStrategy::data_parallel);
        config.max_steps = 3;
        TrainingOptions options;
        options.ranks = 2;
        options.checkpoints = folder / "ended";
        ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
        config.max_steps = 0;
        std::latch third{2};
        as_worlds(2, 0, [&](World& world) {
            RunOptions run_options;
            run_options.checkpoint_directory = folder / "lost";
            run_options.on_step = [&](const StepResult& step) {
                if (step.step == 3) {
                    third.arrive_and_wait();
                    if (world.rank() == 1) {
                        throw Gone{};
                    }
                }
            };
            TrainingRun run{config, few_digits(), world, run_options};
            EXPECT_TRUE(run.prepare().has_value());
            try {
                const Result<RunEnd> end = run.run();
                EXPECT_FALSE(end.has_value()) << "rank " << world.rank();
            } catch (const Gone&) {
                EXPECT_EQ(world.rank(), 1);
            }
        });
        const auto ended = latest_checkpoint(folder / "ended");
        const auto lost = latest_checkpoint(folder / "lost");
        ASSERT_TRUE(ended.has_value() && ended->has_value());
        ASSERT_TRUE(lost.has_value() && lost->has_value());
        const Checkpoint& want = (*ended)->checkpoint;
        const Checkpoint& got = (*lost)->checkpoint;
        EXPECT_EQ(got.step, 3);
        ASSERT_FALSE(want.buffers.empty());
        ASSERT_EQ(got.buffers.size(), want.buffers.size());
        for (std::size_t i = 0; i < want.buffers.size(); ++i) {
            ASSERT_NEAR(got.buffers[i], want.buffers[i], 1e-4) << i;
        }
        if (!portable) {  // LibTorch's operations promise no bits
            EXPECT_EQ(got.buffers, want.buffers);
            EXPECT_EQ(got.parameters, want.parameters);
            EXPECT_EQ(got.optimizer, want.optimizer);
        }
    }
}

}  // namespace
}  // namespace lockstep
