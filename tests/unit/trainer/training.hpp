// Trains as every rank of a world, and keeps what each of them saw.
#pragma once

#include "job/trainer/device.hpp"
#include "job/trainer/run.hpp"
#include "job/trainer/strategy.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/ranks.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// 640 drawings to train with and 100 to test with, made once for a program.
inline const Dataset& few_digits() {
    static const test::TemporaryFolder folder;
    static const Dataset data = [] {
        TrainConfig config;
        config.train_samples = 640;
        config.test_samples = 100;
        Result<Dataset> loaded = load_dataset(config, folder.path());
        EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
        return std::move(*loaded);
    }();
    return data;
}

struct Trained {
    std::vector<std::vector<StepResult>> steps;  // by rank
    std::vector<std::vector<float>> weights;     // by rank, at the end; what the rank could collect
    std::vector<Result<RunEnd>> ends;            // by rank

    std::vector<double> losses(std::size_t rank = 0) const {
        std::vector<double> out;
        for (const StepResult& step : steps[rank]) {
            out.push_back(step.loss);
        }
        return out;
    }
    // Mean over the ranks that trained: what one rank with the whole batch would report.
    std::vector<double> mean_losses() const {
        std::vector<double> out;
        double ranks = 0.0;
        for (std::size_t rank = 0; rank < steps.size(); ++rank) {
            const std::vector<double> mine = losses(rank);
            if (mine.empty()) {
                continue;
            }
            out.resize(mine.size(), 0.0);
            ranks += 1.0;
            for (std::size_t i = 0; i < mine.size(); ++i) {
                out[i] += mine[i];
            }
        }
        for (double& loss : out) {
            loss /= ranks;
        }
        return out;
    }
};

struct TrainingOptions {
    std::int32_t ranks = 1;
    std::int32_t servers = 0;  // so many of the first ranks
    std::int32_t ranks_per_node = 1'000;
    std::vector<std::int32_t> gpus = {};  // of each rank that is no server; none: the CPU
    // Values go between devices over groups of their own, as between GPUs.
    bool apart = false;
    std::filesystem::path checkpoints = {};
    std::function<void(std::int32_t rank, const StepResult&)> on_step = {};
};

inline Trained train_in_world(const TrainConfig& config, const Dataset& data,
                              const TrainingOptions& options) {
    const auto count = static_cast<std::size_t>(options.ranks);
    Trained out;
    out.steps.resize(count);
    out.weights.resize(count);
    out.ends.resize(count, fail(Errc::internal, "did not run"));
    as_worlds(
        options.ranks, options.servers,
        [&](World& world) {
            const auto rank = static_cast<std::size_t>(world.rank());
            if (!options.gpus.empty() && !world.server()) {
                use_device({at::kCUDA, static_cast<at::DeviceIndex>(options.gpus.front())});
                world.use_gpus(options.gpus, {});
            }
            if (options.apart) {
                world.use_gpus({}, [&](const std::string& name, std::int32_t /*place*/,
                                       const std::vector<std::int32_t>& members) {
                    return world.group("apart-" + name, members);
                });
            }
            RunOptions run_options;
            run_options.checkpoint_directory = options.checkpoints;
            run_options.on_step = [&, rank](const StepResult& step) {
                out.steps[rank].push_back(step);
                if (options.on_step) {
                    options.on_step(static_cast<std::int32_t>(rank), step);
                }
            };
            TrainingRun run{config, data, world, run_options};
            if (const Status ready = run.prepare(); !ready) {
                out.ends[rank] = fail(ready.error());
                return;
            }
            out.ends[rank] = run.run();
            Checkpoint state;
            if (out.ends[rank] && config.strategy != TrainStrategy::parameter_server &&
                run.strategy().collect(state)) {
                out.weights[rank] = state.parameters;
            }
        },
        options.ranks_per_node);
    return out;
}

inline void expect_same(const std::vector<double>& a, const std::vector<double>& b,
                        double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_NEAR(a[i], b[i], tolerance) << "step " << i + 1;
    }
}

}  // namespace lockstep
