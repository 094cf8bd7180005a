// Where the time of a pipeline's step goes: a stage that waits for a neighbour is not busy.
#include "job/trainer/strategies/pipeline.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int32_t kStages = 3;
constexpr std::int32_t kSlowStage = 1;

// The network of `config`; one layer of the slow stage takes `extra` longer on the way forward.
std::vector<Layer> with_a_slow_stage(const TrainConfig& config, const ModelShape& shape,
                                     std::chrono::milliseconds extra) {
    std::vector<Layer> network = model_layers(config, shape);
    Layer& slow = network[layers_of_stage(network.size(), kStages, kSlowStage).first];
    slow.forward = [forward = std::move(slow.forward), extra](
                       const at::Tensor& x, std::span<const at::Tensor> parameters,
                       const at::Tensor& buffer, const Pass& pass) {
        std::this_thread::sleep_for(extra);
        return forward(x, parameters, buffer, pass);
    };
    return network;
}

struct Times {
    double busy = 0.0;
    double comm_wait = 0.0;
    double computing = 0.0;  // forward and backward
};

TEST(Pipeline, TheSlowStageIsTheBusyOneAndTheOthersWaitForIt) {
    TrainConfig config;
    config.model = TrainModel::mlp;
    config.strategy = TrainStrategy::pipeline;
    config.batch_size = 32;
    config.micro_batches = 4;
    config.loader_workers = 0;
    std::array<Times, kStages> times{};
    as_worlds(kStages, 0, [&](World& world) {
        const Dataset& data = few_digits();
        Result<std::unique_ptr<Communicator>> peers =
            world.group("stage-" + std::to_string(world.rank()), {world.rank()});
        ASSERT_TRUE(peers.has_value()) << peers.error().text();
        Pipeline pipeline{config,
                          with_a_slow_stage(config, shape_of(data), std::chrono::milliseconds{25}),
                          {.stages = kStages, .stage = world.rank(), .chain = 0, .chains = 1},
                          world,
                          {std::move(*peers), nullptr, nullptr}};
        ASSERT_TRUE(pipeline.measure(world).has_value());
        Loader loader{data.train, config.batch_size, 0, world.rank() == 0};
        std::vector<std::uint32_t> order(96);
        std::iota(order.begin(), order.end(), 0U);
        loader.begin(std::move(order));
        Times& mine = times.at(static_cast<std::size_t>(world.rank()));
        for (std::int64_t number = 1; number <= 3; ++number) {
            StepResult result;
            result.step = number;
            result.samples = config.batch_size;
            result.learning_rate = 0.01;
            const auto start = std::chrono::steady_clock::now();
            const Status stepped = pipeline.step(loader, result);
            ASSERT_TRUE(stepped.has_value()) << stepped.error().text();
            const double whole =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            mine.busy += whole - result.comm_wait_seconds - result.data_wait_seconds;
            mine.comm_wait += result.comm_wait_seconds;
            mine.computing += result.forward_seconds + result.backward_seconds;
        }
    });
    const Times& slow = times[kSlowStage];
    for (const std::size_t other : {0U, 2U}) {
        SCOPED_TRACE("stage " + std::to_string(other));
        EXPECT_GT(slow.busy, times.at(other).busy);
        EXPECT_GT(slow.computing, times.at(other).computing);
        EXPECT_LT(slow.comm_wait, times.at(other).comm_wait);
    }
}

}  // namespace
}  // namespace lockstep
