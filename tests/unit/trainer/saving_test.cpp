// Checkpoints that are written beside the training, by several ranks, and what is not kept.
#include "job/base/files.hpp"
#include "job/trainer/checkpoint_writer.hpp"
#include "job/trainer/named_state.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <limits>
#include <mutex>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

TEST(CheckpointWriter, ACopyThatCannotBeMadeIsAFailureAndHoldsNobodyUp) {
    CheckpointWriter writer;
    bool wrote = false;
    writer.begin([] { throw std::bad_alloc{}; },
                 [&]() -> Result<std::string> {
                     wrote = true;
                     return std::string{"a"};
                 });
    writer.wait_copied();
    const auto outcome = writer.take(/*wait=*/true);
    ASSERT_TRUE(outcome.has_value());
    ASSERT_FALSE(outcome->has_value());
    EXPECT_EQ(outcome->error().code, Errc::exhausted);
    EXPECT_FALSE(wrote);
}

TEST(CheckpointWriter, TheCallerGoesOnWhileItWrites) {
    std::mutex mutex;
    std::condition_variable changed;
    bool let_go = false;
    CheckpointWriter writer;
    EXPECT_FALSE(writer.take(true).has_value());
    bool copied = false;
    writer.begin([&] { copied = true; },
                 [&]() -> Result<std::string> {
                     std::unique_lock lock{mutex};
                     changed.wait(lock, [&] { return let_go; });
                     return std::string{"one"};
                 });
    writer.wait_copied();
    EXPECT_TRUE(copied);
    writer.wait_copied();  // nothing more to wait for
    EXPECT_FALSE(writer.take(false).has_value());
    EXPECT_FALSE(writer.idle());
    {
        const std::lock_guard lock{mutex};
        let_go = true;
    }
    changed.notify_all();
    const auto first = writer.take(true);
    ASSERT_TRUE(first.has_value() && first->has_value());
    EXPECT_EQ(**first, "one");
    EXPECT_TRUE(writer.idle());
    EXPECT_FALSE(writer.take(true).has_value());
    writer.begin([] {}, []() -> Result<std::string> { return fail(Errc::exhausted, "disk full"); });
    const auto second = writer.take(true);
    ASSERT_TRUE(second.has_value());
    ASSERT_FALSE(second->has_value());
    EXPECT_EQ(second->error().message, "disk full");
}

TrainConfig small_mlp() {
    TrainConfig config;
    config.model = TrainModel::mlp;
    config.dropout = 0.0;
    config.epochs = 1;
    config.batch_size = 32;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 3;
    return config;
}

// What is left to be copied beside the next step is still the state before it when that step asks,
// and the moments, which are not copied, are it after that step as well.
TEST(Saving, TheStateIsCopiedBesideTheNextStep) {
    for (const TrainStrategy strategy :
         {TrainStrategy::data_parallel, TrainStrategy::pipeline, TrainStrategy::replicated}) {
        SCOPED_TRACE(to_string(strategy));
        TrainConfig config = small_mlp();
        config.strategy = strategy;
        const bool one = strategy == TrainStrategy::replicated;
        as_worlds(one ? 1 : 2, 0, [&](World& world) {
            const Dataset& data = few_digits();
            auto made = make_strategy(config, shape_of(data), world);
            ASSERT_TRUE(made.has_value()) << made.error().text();
            Loader loader{data.train, 32, 0};
            std::vector<std::uint32_t> order(64);
            std::iota(order.begin(), order.end(), 0U);
            loader.begin(std::move(order));
            const auto step = [&](std::int64_t number) {
                StepResult result;
                result.step = number;
                result.samples = 32;
                result.learning_rate = 0.01;
                return (*made)->step(loader, result);
            };
            ASSERT_TRUE(step(1).has_value());
            Snapshot kept;
            if (world.rank() == 0 || !(*made)->root_has_all()) {
                ASSERT_TRUE((*made)->snapshot({1, 0, 1}, kept).has_value());
            }
            Snapshot now = kept;
            now.copy();
            std::vector<std::vector<float>> before;
            for (const CheckpointSlice& slice : now.part.slices) {
                before.emplace_back(slice.floats().begin(), slice.floats().end());
            }
            (*made)->before_update([&] { kept.copy(); });
            ASSERT_TRUE(step(2).has_value());
            ASSERT_EQ(kept.part.slices.size(), before.size());
            for (std::size_t i = 0; i < before.size(); ++i) {
                const CheckpointSlice& slice = kept.part.slices[i];
                EXPECT_EQ(slice.kept, slice.section == Section::optimizer) << i;
                EXPECT_TRUE(slice.kept || slice.source.data() == nullptr) << i;
                EXPECT_TRUE(std::ranges::equal(slice.floats(), before[i])) << i;
            }
            if (world.rank() == 0) {
                Snapshot later;
                ASSERT_TRUE((*made)->snapshot({2, 0, 1}, later).has_value());
                later.copy();
                EXPECT_FALSE(std::ranges::equal(later.part.slices[0].floats(), before[0]));
                const CheckpointSlice& moments = later.part.slices.back();
                EXPECT_FALSE(std::ranges::equal(moments.floats(), before.back()));
            }
        });
    }
}

std::vector<std::string> files_of(const std::filesystem::path& folder) {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
        out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
}

// Every stage writes what it holds; only parts of the two checkpoints that are kept stay.
TEST(Saving, EveryStageOfAPipelineWritesItsPart) {
    const TemporaryFolder folder;
    TrainConfig config = small_mlp();
    config.strategy = TrainStrategy::pipeline;
    config.stages = 3;
    config.batch_size = 8;
    TrainingOptions options;
    options.ranks = 6;
    options.checkpoints = folder.path();
    config.max_steps = 12;
    const Trained six = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(six.ends[5].has_value()) << six.ends[5].error().text();
    const std::vector<std::string> files = files_of(folder.path());
    ASSERT_EQ(files.size(), 7U) << testing::PrintToString(files);
    EXPECT_EQ(files[0], "model.safetensors");
    EXPECT_EQ(files[1], "step-00000009.ckpt");
    EXPECT_TRUE(files[2].starts_with("step-00000009.part-1-of-3-")) << files[2];
    EXPECT_TRUE(files[6].starts_with("step-00000012.part-2-of-3-")) << files[6];
    const auto found = latest_checkpoint(folder.path());
    ASSERT_TRUE(found.has_value() && found->has_value());
    EXPECT_EQ((*found)->checkpoint.parameters, six.weights[0]);
}

// Servers' parts are of one step, although workers go on while they are written.
TEST(Saving, TheServersPartsAreTheStateOfOneStep) {
    const TemporaryFolder folder;
    TrainConfig config = small_mlp();
    config.checkpoint_every_steps = 0;
    config.max_steps = 6;
    TrainingOptions alone;
    alone.checkpoints = folder / "one";
    ASSERT_TRUE(train_in_world(config, few_digits(), alone).ends[0].has_value());
    const auto one = latest_checkpoint(folder / "one");
    config.strategy = TrainStrategy::parameter_server;
    config.batch_size = 16;
    config.checkpoint_every_steps = 3;
    config.max_steps = 8;
    TrainingOptions options;
    options.ranks = 4;
    options.servers = 2;
    options.checkpoints = folder / "servers";
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[3].has_value());
    std::filesystem::remove(folder / "servers" / "step-00000008.ckpt");
    const auto servers = latest_checkpoint(folder / "servers");
    ASSERT_TRUE(servers.has_value() && servers->has_value());
    const Checkpoint& a = (*one)->checkpoint;
    const Checkpoint& b = (*servers)->checkpoint;
    ASSERT_EQ(b.step, 6);
    ASSERT_EQ(a.parameters.size(), b.parameters.size());
    ASSERT_EQ(a.optimizer.size(), b.optimizer.size());
    for (std::size_t i = 0; i < a.parameters.size(); ++i) {
        ASSERT_NEAR(a.parameters[i], b.parameters[i], 1e-4) << i;
    }
    for (std::size_t i = 0; i < a.optimizer.size(); ++i) {
        ASSERT_NEAR(a.optimizer[i], b.optimizer[i], 1e-4) << i;
    }
}

// Each worker's step is an update of an asynchronous server. Its Adam went on as if it had made
// those of one worker.
TEST(Saving, AnAsynchronousServerGoesOnWithTheUpdatesOfAllWorkers) {
    const TemporaryFolder folder;
    TrainConfig config = small_mlp();
    config.strategy = TrainStrategy::parameter_server;
    config.update = TrainUpdate::async;
    config.batch_size = 16;
    config.checkpoint_every_steps = 0;
    TrainingOptions options;
    options.ranks = 3;
    options.servers = 1;
    options.checkpoints = folder.path();
    for (const std::int64_t steps : {4, 6}) {
        config.max_steps = steps;
        std::latch last{2};
        options.on_step = [&](std::int32_t, const StepResult& step) {
            if (step.step == steps) {
                last.arrive_and_wait();  // then the first worker saves
            }
        };
        const Trained two = train_in_world(config, few_digits(), options);
        for (const Result<RunEnd>& end : two.ends) {
            ASSERT_TRUE(end.has_value()) << end.error().text();
        }
        const auto found = latest_checkpoint(folder.path());
        ASSERT_TRUE(found.has_value() && found->has_value());
        EXPECT_EQ((*found)->checkpoint.step, steps);
        EXPECT_EQ((*found)->checkpoint.optimizer_steps, 2 * steps);
    }
}

// A checkpoint whose part is lost, torn or another's is none; the one before is.
TEST(Saving, APartThatIsMissingDamagedOrForeignFallsBackToTheCheckpointBefore) {
    const TemporaryFolder folder;
    TrainConfig config = small_mlp();
    config.strategy = TrainStrategy::pipeline;
    config.max_steps = 6;
    TrainingOptions options;
    options.ranks = 2;
    options.checkpoints = folder.path();
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
    std::string newest;
    std::string older;
    for (const std::string& name : files_of(folder.path())) {
        newest = name.starts_with("step-00000006.part") ? name : newest;
        older = name.starts_with("step-00000003.part") ? name : older;
    }
    const auto step_now = [&] {
        const auto found = latest_checkpoint(folder.path());
        return found && *found ? (*found)->checkpoint.step : -1;
    };
    ASSERT_EQ(step_now(), 6);
    const std::string good = test::text_of(folder / newest);
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
    for (const std::string& part :
         {bad, good.substr(0, good.size() - 1), test::text_of(folder / older), std::string{}}) {
        ASSERT_TRUE(write_file_atomic(folder / newest, part).has_value());
        EXPECT_EQ(step_now(), 3);
    }
    ASSERT_TRUE(write_file_atomic(folder / newest, good).has_value());
    EXPECT_EQ(step_now(), 6);
    std::filesystem::remove(folder / newest);
    EXPECT_EQ(step_now(), 3);
}

// A pipeline's checkpoint goes on with other stages' cuts and fewer chains, as with the same.
TEST(Saving, ACheckpointInPartsGoesOnWithFewerRanks) {
    const TemporaryFolder folder;
    TrainConfig config = small_mlp();
    config.strategy = TrainStrategy::pipeline;
    config.stages = 2;
    config.batch_size = 8;
    config.max_steps = 5;
    TrainingOptions options;
    options.ranks = 4;
    options.checkpoints = folder.path();
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
    config.max_steps = 0;
    options.ranks = 2;
    const Trained two = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(two.ends[1].has_value()) << two.ends[1].error().text();
    EXPECT_EQ(two.ends[1]->resumed_from, 5);
    EXPECT_EQ(two.steps[1].size(), 70U);  // 640 − 5 · 16 samples are left
}

// Nothing of the step is lost when the folder cannot be written: the run says so and ends.
TEST(Saving, AFolderThatCannotBeWrittenEndsTheRunByName) {
    const TemporaryFolder folder;
    std::filesystem::create_directory_symlink(folder / "gone", folder / "checkpoints");
    TrainConfig config = small_mlp();
    TrainingOptions options;
    options.checkpoints = folder / "checkpoints";
    const Trained one = train_in_world(config, few_digits(), options);
    ASSERT_FALSE(one.ends[0].has_value());
    EXPECT_FALSE(one.steps[0].empty());
    EXPECT_NE(one.ends[0].error().text().find("checkpoint"), std::string::npos)
        << one.ends[0].error().text();
}

// A first step without a number is an error on every rank, and nothing is kept of it.
TEST(Saving, ALossThatIsNoNumberAtStepOneEndsTheRunByName) {
    const TemporaryFolder folder;
    TrainConfig config = small_mlp();
    const Trained one = train_in_world(config, few_digits(), {});
    ASSERT_TRUE(one.ends[0].has_value());
    std::vector<float> broken = one.weights[0];
    broken[broken.size() - 1'000] = std::numeric_limits<float>::quiet_NaN();
    const std::string file = (folder / "weights.safetensors").string();
    ASSERT_TRUE(
        write_file_atomic(
            file, encode_safetensors(
                      named_state(model_layers(config, shape_of(few_digits())), broken, {}), {}))
            .has_value());
    config.weights = file;
    config.checkpoint_every_steps = 1;
    TrainingOptions options;
    options.ranks = 2;
    options.checkpoints = folder / "checkpoints";
    const Trained two = train_in_world(config, few_digits(), options);
    for (const Result<RunEnd>& end : two.ends) {
        ASSERT_FALSE(end.has_value());
        EXPECT_EQ(end.error().code, Errc::invalid);
        EXPECT_NE(end.error().message.find("step 1: the loss is nan"), std::string::npos)
            << end.error().message;
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "checkpoints"));
}

// The newest checkpoint is one that a restart can go on from.
TEST(Saving, AStateThatIsNotFiniteIsNotKept) {
    const TemporaryFolder folder;
    TrainConfig config = small_mlp();
    config.optimizer = TrainOptimizer::sgd;
    config.learning_rate = 1e6;
    config.checkpoint_every_steps = 1;
    TrainingOptions options;
    options.checkpoints = folder.path();
    const Trained one = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(one.ends[0].has_value()) << one.ends[0].error().text();
    ASSERT_GT(one.ends[0]->nonfinite_losses, 0);
    const auto found = latest_checkpoint(folder.path());
    ASSERT_TRUE(found.has_value() && found->has_value());
    const std::vector<float>& kept = (*found)->checkpoint.parameters;
    EXPECT_TRUE(std::all_of(kept.begin(), kept.end(), [](float x) { return std::isfinite(x); }));
    EXPECT_LT((*found)->checkpoint.step, one.ends[0]->step);
}

}  // namespace
}  // namespace lockstep
