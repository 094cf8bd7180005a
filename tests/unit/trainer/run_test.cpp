#include "job/trainer/run.hpp"

#include "job/base/files.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategy.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

TrainConfig small() {
    TrainConfig config;
    config.epochs = 1;
    config.batch_size = 64;
    config.loader_workers = 1;
    config.checkpoint_every_steps = 0;
    return config;
}

using OnStep = std::function<void(std::int32_t rank, const StepResult&)>;

Trained train(const TrainConfig& config, std::int32_t ranks,
              const std::filesystem::path& checkpoints = {}, const OnStep& on_step = {}) {
    TrainingOptions options;
    options.ranks = ranks;
    options.checkpoints = checkpoints;
    options.on_step = on_step;
    return train_in_world(config, few_digits(), options);
}

class AnyModel : public testing::TestWithParam<TrainModel> {
  protected:
    // Layers that look at a whole batch are off: then splitting it must not matter.
    static TrainConfig splittable() {
        TrainConfig config = small();
        config.model = GetParam();
        config.norm_mode = NormMode::eval;
        config.dropout = 0.0;
        config.epochs = 2;
        return config;
    }
};

TEST_P(AnyModel, FourRanksOf16GiveTheLossCurveOfOneRankOf64) {
    TrainConfig config = splittable();
    const Trained one = train(config, 1);
    config.batch_size = 16;
    const Trained four = train(config, 4);
    ASSERT_EQ(one.losses().size(), 20U);
    expect_same(four.mean_losses(), one.losses(), 1e-4);
    EXPECT_LT(one.losses().back(), one.losses().front() - 0.02);
}

TEST_P(AnyModel, AccumulatingFourTimes16GivesTheLossCurveOf64) {
    TrainConfig config = splittable();
    const Trained whole = train(config, 1);
    config.batch_size = 16;
    config.accumulate = 4;
    const Trained parts = train(config, 1);
    expect_same(parts.losses(), whole.losses(), 1e-4);
    EXPECT_EQ(parts.steps[0][0].samples, 64);
}

INSTANTIATE_TEST_SUITE_P(Models, AnyModel,
                         testing::Values(TrainModel::mnist_convnet, TrainModel::mlp),
                         [](const auto& each) { return std::string{to_string(each.param)}; });

TEST(Run, EveryRankHasTheSameWeightsBitForBit) {
    TrainConfig config = small();
    config.batch_size = 20;
    const Trained three = train(config, 3);
    EXPECT_EQ(three.weights[0], three.weights[1]);
    EXPECT_EQ(three.weights[0], three.weights[2]);
    EXPECT_NE(three.losses(0), three.losses(1));  // the reported loss is each rank's own
}

TEST(Run, TheSameSeedRepeatsTheRunAndAnotherDoesNot) {
    TrainConfig config = small();
    config.max_steps = 5;
    const Trained first = train(config, 1);
    EXPECT_EQ(train(config, 1).weights[0], first.weights[0]);
    config.loader_workers = 0;
    EXPECT_EQ(train(config, 1).weights[0], first.weights[0]);
    config.seed = 1;
    EXPECT_NE(train(config, 1).weights[0], first.weights[0]);
}

TEST(Run, TheLastBatchOfAnEpochMayBeSmaller) {
    TrainConfig config = small();
    config.batch_size = 100;
    config.accumulate = 3;
    config.epochs = 2;
    const Trained one = train(config, 1);
    std::vector<std::int64_t> samples;
    for (const StepResult& step : one.steps[0]) {
        samples.push_back(step.samples);
    }
    EXPECT_EQ(samples, (std::vector<std::int64_t>{300, 300, 40, 300, 300, 40}));
}

TEST(Run, ScalingTheLearningRateMultipliesItByTheRanks) {
    TrainConfig config = small();
    config.optimizer = TrainOptimizer::sgd;
    config.momentum = 0.0;
    config.max_steps = 1;
    config.learning_rate = 0.02;
    const Trained plain = train(config, 2);
    config.learning_rate = 0.01;
    config.scale_learning_rate = true;
    EXPECT_EQ(train(config, 2).weights[0], plain.weights[0]);
}

TEST(Run, StepsCarryTheirTimes) {
    TrainConfig config = small();
    config.max_steps = 3;
    const Trained two = train(config, 2);
    ASSERT_EQ(two.steps[1].size(), 3U);
    for (const StepResult& step : two.steps[1]) {
        EXPECT_GT(step.forward_seconds, 0.0);
        EXPECT_GT(step.backward_seconds, 0.0);
        EXPECT_GT(step.optimizer_seconds, 0.0);
        EXPECT_GT(step.gradient_norm, 0.0);
        EXPECT_GE(step.step_seconds, step.forward_seconds + step.backward_seconds +
                                         step.data_wait_seconds + step.comm_wait_seconds +
                                         step.optimizer_seconds);
    }
}

class Resume : public testing::TestWithParam<std::int32_t> {};

TEST_P(Resume, GoesOnAsIfNothingHadHappened) {
    const std::int32_t ranks = GetParam();
    TrainConfig config = small();
    config.batch_size = 64 / ranks;
    config.epochs = 2;  // 20 steps; the stop is inside the first epoch
    const Trained straight = train(config, ranks);
    const TemporaryFolder folder;
    config.max_steps = 7;
    const Trained first = train(config, ranks, folder.path());
    ASSERT_EQ(first.losses().size(), 7U);
    config.max_steps = 0;
    const Trained second = train(config, ranks, folder.path());
    ASSERT_TRUE(second.ends[0].has_value()) << second.ends[0].error().text();
    EXPECT_EQ(second.ends[0]->resumed_from, 7);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
        const std::vector<double> all = straight.losses(rank);
        expect_same(second.losses(rank), {all.begin() + 7, all.end()}, 1e-6);
        EXPECT_EQ(second.weights[rank], straight.weights[rank]);
    }
    EXPECT_EQ(second.ends[0]->accuracy, straight.ends[0]->accuracy);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Resume, testing::Values(1, 2));

TEST(Run, ADamagedCheckpointFallsBackToTheOneBefore) {
    const TemporaryFolder folder;
    TrainConfig config = small();
    config.checkpoint_every_steps = 3;
    config.max_steps = 6;
    const Trained first = train(config, 1, folder.path());
    const std::filesystem::path newest = folder.path() / "step-00000006.ckpt";
    std::string bytes = read_file(newest, 1U << 24U).value();
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x40);
    ASSERT_TRUE(write_file_atomic(newest, bytes).has_value());
    const Trained second = train(config, 1, folder.path());
    EXPECT_EQ(second.ends[0]->resumed_from, 3);
    const std::vector<double> all = first.losses();
    expect_same(second.losses(), {all.begin() + 3, all.end()}, 1e-6);
}

TEST(Run, AFinishedRunHasNothingLeftToDo) {
    const TemporaryFolder folder;
    TrainConfig config = small();
    config.max_steps = 4;
    const Trained first = train(config, 1, folder.path());
    const Trained again = train(config, 1, folder.path());
    EXPECT_TRUE(again.steps[0].empty());
    EXPECT_EQ(again.ends[0]->accuracy, first.ends[0]->accuracy);
}

TEST(Run, ACheckpointOfAnotherConfigurationIsRefusedOnEveryRank) {
    const TemporaryFolder folder;
    TrainConfig config = small();
    config.max_steps = 2;
    ASSERT_TRUE(train(config, 1, folder.path()).ends[0].has_value());
    config.learning_rate = 0.5;
    config.model = TrainModel::mlp;
    config.strategy = TrainStrategy::pipeline;
    const Trained other = train(config, 2, folder.path());
    for (const Result<RunEnd>& end : other.ends) {
        ASSERT_FALSE(end.has_value());
        EXPECT_EQ(end.error().code, Errc::conflict);
    }
    const std::string& message = other.ends[0].error().message;
    for (const char* difference : {"model was \"mnist_convnet\" and is \"mlp\"",
                                   "strategy was \"data_parallel\" and is \"pipeline\"",
                                   "learning_rate was 0.001 and is 0.5"}) {
        EXPECT_NE(message.find(difference), std::string::npos) << message;
    }
}

// The data may have changed since. Told to stop, the run would end without a step if it found
// nothing to begin and did nothing but evaluate.
TEST(Run, FewerSamplesThanWereUsedOfAnEpochBeginTheNextOne) {
    const TemporaryFolder folder;
    TrainConfig config = small();
    config.max_steps = 7;
    ASSERT_TRUE(train(config, 1, folder.path()).ends[0].has_value());
    Dataset fewer = few_digits();
    fewer.train.count = 320;  // of which 448 were used
    config.max_steps = 0;
    config.epochs = 3;
    TrainingOptions options;
    options.checkpoints = folder.path();
    stop_signal::request();
    const Trained stopped = train_in_world(config, fewer, options);
    stop_signal::reset();
    ASSERT_TRUE(stopped.ends[0].has_value()) << stopped.ends[0].error().text();
    EXPECT_EQ(stopped.ends[0]->resumed_from, 7);
    ASSERT_EQ(stopped.steps[0].size(), 1U);
    EXPECT_EQ(stopped.steps[0][0].epoch, 1);
    EXPECT_EQ(stopped.steps[0][0].batch, 0);
    const Trained rest = train_in_world(config, fewer, options);
    ASSERT_TRUE(rest.ends[0].has_value()) << rest.ends[0].error().text();
    EXPECT_EQ(rest.steps[0].size(), 9U);  // two epochs of 5, of which one was made
}

TEST(Run, ACheckpointOfDataWithOtherClassesIsRefusedByTheLayer) {
    const TemporaryFolder folder;
    TrainConfig config = small();
    config.model = TrainModel::mlp;
    config.max_steps = 2;
    TrainingOptions options;
    options.checkpoints = folder.path();
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
    Dataset other = few_digits();
    other.classes = 12;
    const Trained refused = train_in_world(config, other, options);
    ASSERT_FALSE(refused.ends[0].has_value());
    EXPECT_EQ(refused.ends[0].error().code, Errc::conflict);
    const std::string& message = refused.ends[0].error().message;
    for (const char* part : {"was written by a run with other data", "[10,256] and is [12,256]",
                             "the data has other columns or classes"}) {
        EXPECT_NE(message.find(part), std::string::npos) << message;
    }
}

TEST(Run, AStopOfOneRankStopsAllAtTheSameStepWithACheckpoint) {
    const TemporaryFolder folder;
    TrainConfig config = small();
    config.batch_size = 16;
    stop_signal::reset();
    const Trained two =
        train(config, 2, folder.path(), [](std::int32_t rank, const StepResult& step) {
            if (rank == 1 && step.step == 5) {
                stop_signal::request();
            }
        });
    stop_signal::reset();
    for (const Result<RunEnd>& end : two.ends) {
        ASSERT_TRUE(end.has_value()) << end.error().text();
        EXPECT_TRUE(end->stopped);
        EXPECT_EQ(end->step, two.ends[0]->step);
    }
    EXPECT_GE(two.ends[0]->step, 5);
    EXPECT_LE(two.ends[0]->step, 7);
    const auto found = latest_checkpoint(folder.path());
    ASSERT_TRUE(found.has_value() && found->has_value());
    EXPECT_EQ((*found)->checkpoint.step, two.ends[0]->step);
}

class StopInEvaluation : public testing::TestWithParam<TrainStrategy> {};

// Every rank has made the last step of the epoch when the stop comes, so what sees it is the
// evaluation. The one after the last epoch is no other.
TEST_P(StopInEvaluation, ItIsLeftWithACheckpointOnAllRanks) {
    for (const int epochs : {1, 2}) {
        SCOPED_TRACE(epochs);
        const TemporaryFolder folder;
        TrainConfig config = small();
        config.model = TrainModel::mlp;
        config.strategy = GetParam();
        config.epochs = epochs;
        TrainingOptions options;
        options.ranks = GetParam() == TrainStrategy::replicated ? 1 : 4;
        options.servers = GetParam() == TrainStrategy::parameter_server ? 2 : 0;
        const int shards = GetParam() == TrainStrategy::data_parallel ? 4
                           : options.ranks == 4                       ? 2
                                                                      : 1;
        config.stages = GetParam() == TrainStrategy::pipeline ? 2 : 0;
        config.batch_size = 64 / shards;
        options.checkpoints = folder.path();
        std::promise<void> request;
        const std::shared_future<void> requested = request.get_future().share();
        options.on_step = [&](std::int32_t rank, const StepResult& step) {
            if (step.step != 10) {
                return;
            }
            if (rank == options.ranks - 1) {
                stop_signal::request();
                request.set_value();
            } else if (GetParam() == TrainStrategy::pipeline) {
                // Its stages need not wait for the last one to begin: on a busy machine the short
                // evaluation was over before the stop came.
                requested.wait_for(std::chrono::minutes{1});
            }
        };
        stop_signal::reset();
        const Trained all = train_in_world(config, few_digits(), options);
        stop_signal::reset();
        for (const Result<RunEnd>& end : all.ends) {
            ASSERT_TRUE(end.has_value()) << end.error().text();
            if (!end->served) {
                EXPECT_TRUE(end->stopped);
                EXPECT_EQ(end->step, 10);
                EXPECT_FALSE(end->evaluated);
            }
        }
        const auto found = latest_checkpoint(folder.path());
        ASSERT_TRUE(found.has_value() && found->has_value());
        EXPECT_EQ((*found)->checkpoint.step, 10);
        EXPECT_EQ((*found)->checkpoint.epoch, 1);
    }
}

INSTANTIATE_TEST_SUITE_P(Strategies, StopInEvaluation,
                         testing::Values(TrainStrategy::data_parallel, TrainStrategy::replicated,
                                         TrainStrategy::parameter_server, TrainStrategy::pipeline),
                         [](const auto& each) { return std::string{to_string(each.param)}; });

TEST(Run, ALossThatIsNotFiniteIsReportedAsItIsAndCounted) {
    TrainConfig config = small();
    config.model = TrainModel::mlp;
    config.optimizer = TrainOptimizer::sgd;
    config.learning_rate = 1e6;
    config.dropout = 0.0;
    const Trained one = train(config, 1);
    ASSERT_TRUE(one.ends[0].has_value());
    const auto losses = one.losses();
    const auto wild = std::count_if(losses.begin(), losses.end(),
                                    [](double loss) { return !std::isfinite(loss); });
    EXPECT_GT(wild, 0);
    EXPECT_EQ(one.ends[0]->nonfinite_losses, wild);
}

TEST(Run, AnyNumberOfRanksMayGoOnFromACheckpoint) {
    const TemporaryFolder folder;
    TrainConfig config = small();
    config.batch_size = 16;
    config.max_steps = 4;
    ASSERT_TRUE(train(config, 4, folder.path()).ends[0].has_value());
    config.max_steps = 0;
    const Trained two = train(config, 2, folder.path());
    ASSERT_TRUE(two.ends[1].has_value()) << two.ends[1].error().text();
    // 640 − 4 · 64 samples are left: 12 steps of 2 × 16.
    EXPECT_EQ(two.steps[1].size(), 12U);
}

}  // namespace
}  // namespace lockstep
