// The end of a run whose workers end one after the other: those of asynchronous servers.
#include "job/trainer/named_state.hpp"
#include "job/trainer/safetensors.hpp"
#include "job/trainer/stop_signal.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

// 20 steps of each of two workers an epoch.
TrainConfig two_epochs_apart() {
    TrainConfig config;
    config.model = TrainModel::mlp;
    config.strategy = TrainStrategy::parameter_server;
    config.update = TrainUpdate::async;
    config.dropout = 0.0;
    config.epochs = 2;
    config.batch_size = 16;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    return config;
}
constexpr std::int64_t kTheLast = 40;

std::optional<Checkpoint> newest(const TemporaryFolder& folder) {
    const auto found = latest_checkpoint(folder.path());
    return found && *found ? std::optional{(*found)->checkpoint} : std::nullopt;
}

// The first worker has made its last step when the second one makes its second. What was saved,
// exported and evaluated were the parameters of that moment.
TEST(AsynchronousEnd, TheResultHasTheStepsOfTheSlowerWorker) {
    const TemporaryFolder folder;
    TrainConfig config = two_epochs_apart();
    config.export_as = TrainExport::safetensors;
    config.checkpoint_every_steps = kTheLast;  // due after the first worker's last step
    TrainingOptions options;
    options.ranks = 4;
    options.servers = 2;
    options.checkpoints = folder.path();
    std::latch first_is_done{1};
    options.on_step = [&](std::int32_t rank, const StepResult& step) {
        if (rank == 2 && step.step == kTheLast) {
            first_is_done.count_down();
        } else if (rank == 3 && step.step == 1) {
            first_is_done.wait();
        }
    };
    const Trained two = train_in_world(config, few_digits(), options);
    for (const Result<RunEnd>& end : two.ends) {
        ASSERT_TRUE(end.has_value()) << end.error().text();
        EXPECT_FALSE(end->stopped);
    }
    const std::optional<Checkpoint> saved = newest(folder);
    ASSERT_TRUE(saved.has_value());
    EXPECT_EQ(saved->step, kTheLast);
    EXPECT_EQ(saved->optimizer_steps, 2 * kTheLast);
    const Result<TensorFile> exported = TensorFile::open(folder / "model.safetensors");
    ASSERT_TRUE(exported.has_value()) << exported.error().text();
    std::vector<float> parameters(saved->parameters.size());
    std::vector<float> buffers(saved->buffers.size());
    ASSERT_TRUE(
        import_state(*exported, model_layers(config, shape_of(few_digits())), parameters, buffers)
            .has_value());
    EXPECT_EQ(parameters, saved->parameters);
    EXPECT_TRUE(two.ends[2]->evaluated);
    EXPECT_NEAR(two.ends[2]->test_loss, two.ends[3]->test_loss, 1e-6);
}

// Of the last step it would say that nothing is left to train.
TEST(AsynchronousEnd, ACheckpointOfAStopBeforeItLeavesTheSlowerWorkerItsRest) {
    struct Case {
        std::int32_t every;
        std::int64_t least;
        std::int64_t most;
    };
    // The second worker is stopped at its second step or the one after. The first one's own
    // checkpoints go on where that was.
    for (const Case& each : {Case{0, 2, 3}, Case{25, 26, 26}}) {
        SCOPED_TRACE(each.every);
        const TemporaryFolder folder;
        TrainConfig config = two_epochs_apart();
        config.checkpoint_every_steps = each.every;
        TrainingOptions options;
        options.ranks = 3;
        options.servers = 1;
        options.checkpoints = folder.path();
        std::latch first_is_done{1};
        options.on_step = [&](std::int32_t rank, const StepResult& step) {
            if (rank == 1 && step.step == kTheLast) {
                stop_signal::request();
                first_is_done.count_down();
            } else if (rank == 2 && step.step == 2) {
                first_is_done.wait();
            }
        };
        stop_signal::reset();
        const Trained stopped = train_in_world(config, few_digits(), options);
        stop_signal::reset();
        for (const std::size_t worker : {1U, 2U}) {
            ASSERT_TRUE(stopped.ends[worker].has_value()) << stopped.ends[worker].error().text();
            EXPECT_TRUE(stopped.ends[worker]->stopped);
        }
        const std::optional<Checkpoint> saved = newest(folder);
        ASSERT_TRUE(saved.has_value());
        EXPECT_GE(saved->step, each.least);
        EXPECT_LE(saved->step, each.most);
        EXPECT_EQ(saved->epoch, saved->step / 20);
        EXPECT_EQ(saved->consumed, saved->step % 20 * 32);
        EXPECT_GE(saved->optimizer_steps, kTheLast + 2);

        options.on_step = {};
        const Trained rest = train_in_world(config, few_digits(), options);
        for (const std::size_t worker : {1U, 2U}) {
            ASSERT_TRUE(rest.ends[worker].has_value()) << rest.ends[worker].error().text();
            EXPECT_EQ(rest.steps[worker].size(), static_cast<std::size_t>(kTheLast - saved->step));
        }
        const std::optional<Checkpoint> end = newest(folder);
        ASSERT_TRUE(end.has_value());
        EXPECT_EQ(end->step, kTheLast);
        EXPECT_EQ(end->optimizer_steps, saved->optimizer_steps + 2 * (kTheLast - saved->step));
    }
}

struct Lost {};

// Nobody waits for it for ever, and a restart has its rest to train.
TEST(AsynchronousEnd, AWorkerThatIsLostMeanwhileIsNotWaitedFor) {
    const TemporaryFolder folder;
    std::latch first_is_done{1};
    as_worlds(3, 1, [&](World& world) {
        RunOptions options;
        options.checkpoint_directory = folder.path();
        options.on_step = [&](const StepResult& step) {
            if (world.rank() == 1 && step.step == kTheLast) {
                first_is_done.count_down();
            } else if (world.rank() == 2 && step.step == 2) {
                first_is_done.wait();
                throw Lost{};
            }
        };
        TrainingRun run{two_epochs_apart(), few_digits(), world, options};
        EXPECT_TRUE(run.prepare().has_value());
        try {
            const Result<RunEnd> end = run.run();
            EXPECT_EQ(end.has_value(), world.rank() == 1) << "rank " << world.rank();
        } catch (const Lost&) {
            EXPECT_EQ(world.rank(), 2);
        }
    });
    const std::optional<Checkpoint> saved = newest(folder);
    ASSERT_TRUE(saved.has_value());
    EXPECT_EQ(saved->step, 2);
    EXPECT_EQ(saved->optimizer_steps, kTheLast + 2);
}

}  // namespace
}  // namespace lockstep
