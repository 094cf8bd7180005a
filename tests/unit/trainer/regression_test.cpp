// Numbers as answers: every strategy against one device, how they are judged, checkpoints.
#include "job/base/files.hpp"
#include "job/trainer/random.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

// 640 rows whose last column is a sum of the others with some noise, and a few far off.
const Dataset& numbers() {
    static const TemporaryFolder folder;
    static const Dataset data = [] {
        Random random{9};
        std::string text;
        for (int row = 0; row < 640; ++row) {
            double sum = row % 50 == 0 ? 40.0 : random.uniform(-0.5F, 0.5F);
            for (int column = 0; column < 6; ++column) {
                const double value = random.uniform(-2.0F, 9.0F);
                text += std::to_string(value) + ",";
                sum += (column - 2) * value;
            }
            text += std::to_string(sum) + "\n";
        }
        EXPECT_TRUE(write_file_atomic(folder / "table", text).has_value());
        TrainConfig config;
        config.dataset = TrainDataset::table;
        config.dataset_path = (folder / "table").string();
        Result<Dataset> loaded = load_dataset(config, {});
        EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
        return std::move(*loaded);
    }();
    return data;
}

TrainConfig fifty_steps_of(TrainModel model, TrainLoss loss) {
    TrainConfig config;
    config.model = model;
    config.dropout = 0.0;
    config.batch_size = 64;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    config.weight_decay = 0.01;
    config.gradient_clip = 2.0;
    config.schedule = TrainSchedule::cosine;
    config.warmup_steps = 5;
    config.dataset = TrainDataset::table;
    config.loss = loss;
    config.epochs = 6;
    config.max_steps = 50;
    config.learning_rate = 0.05;
    return config;
}

struct Split {
    TrainStrategy strategy;
    std::int32_t ranks;
    std::int32_t shards;  // into which a step's samples are split
    std::int32_t servers = 0;
    std::int32_t replicas = 1;
};

class RegressionAgainstOneDevice : public testing::TestWithParam<TrainLoss> {};

TEST_P(RegressionAgainstOneDevice, FiftyStepsHaveTheSameLosses) {
    for (const TrainModel model : {TrainModel::linear, TrainModel::mlp}) {
        SCOPED_TRACE(to_string(model));
        const TrainConfig config = fifty_steps_of(model, GetParam());
        const Trained one = train_in_world(config, numbers(), {});
        ASSERT_TRUE(one.ends[0].has_value()) << one.ends[0].error().text();
        ASSERT_EQ(one.losses().size(), 50U);
        EXPECT_LT(one.losses().back(), 0.5 * one.losses().front());
        EXPECT_GT(one.ends[0]->explained, 0.5);
        for (const Split& way : {Split{TrainStrategy::data_parallel, 4, 4},
                                 Split{TrainStrategy::replicated, 1, 1, 0, 2},
                                 Split{TrainStrategy::parameter_server, 3, 2, 1},
                                 Split{TrainStrategy::pipeline, 2, 1}}) {
            SCOPED_TRACE(to_string(way.strategy));
            TrainConfig split = config;
            split.strategy = way.strategy;
            split.batch_size /= way.shards;
            split.replicas = way.replicas;
            TrainingOptions options;
            options.ranks = way.ranks;
            options.servers = way.servers;
            const Trained many = train_in_world(split, numbers(), options);
            const Result<RunEnd>& end = many.ends.back();
            ASSERT_TRUE(end.has_value()) << end.error().text();
            const std::vector<double> losses = many.mean_losses();
            ASSERT_EQ(losses.size(), 50U);
            for (std::size_t i = 0; i < losses.size(); ++i) {
                EXPECT_NEAR(losses[i], one.losses()[i], 1e-4) << i;
            }
            EXPECT_NEAR(end->mean_error, one.ends[0]->mean_error, 1e-3);
            EXPECT_NEAR(end->explained, one.ends[0]->explained, 1e-4);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Losses, RegressionAgainstOneDevice,
                         testing::Values(TrainLoss::mse, TrainLoss::huber),
                         [](const auto& each) { return std::string{to_string(each.param)}; });

// The error is in the column's own unit, and what is explained is R² of the test rows.
TEST(Regression, ANumberIsJudgedByItsErrors) {
    Evaluation sums;
    const at::Tensor asked = at::tensor({1.0F, -1.0F, 3.0F});
    count_answers(at::tensor({1.5F, -1.0F, 1.0F}).view({3, 1}), asked, TrainLoss::mse, sums);
    EXPECT_DOUBLE_EQ(sums.absolute, 2.5);
    EXPECT_DOUBLE_EQ(sums.squares, 4.25);
    EXPECT_NEAR(sums.loss, 4.25, 1e-6);
    EXPECT_DOUBLE_EQ(sums.targets, 3.0);
    EXPECT_DOUBLE_EQ(sums.target_squares, 11.0);
    Evaluation robust;
    count_answers(at::tensor({1.5F, -1.0F, 1.0F}).view({3, 1}), asked, TrainLoss::huber, robust);
    EXPECT_NEAR(robust.loss, 0.125 + 1.5, 1e-6);
}

// A stage that is not the last has as many dimensions as the last one's loss.
TEST(Regression, TheStagesOfAPipelineFindTheirBatch) {
    TrainConfig config = fifty_steps_of(TrainModel::mlp, TrainLoss::mse);
    config.strategy = TrainStrategy::pipeline;
    config.find_batch_size = true;
    config.max_steps = 1;
    TrainingOptions options;
    options.ranks = 2;
    const Trained two = train_in_world(config, numbers(), options);
    for (const auto& end : two.ends) {
        ASSERT_TRUE(end.has_value()) << end.error().text();
        EXPECT_GT(end->batch_size, 64);
    }
}

// A run of a table goes on from its checkpoint as if it had not ended.
TEST(Regression, GoesOnAsIfNothingHadHappened) {
    const TemporaryFolder folder;
    TrainConfig config = fifty_steps_of(TrainModel::linear, TrainLoss::mse);
    config.schedule = TrainSchedule::constant;
    const Trained whole = train_in_world(config, numbers(), {});
    TrainingOptions options;
    options.checkpoints = folder.path();
    config.max_steps = 20;
    ASSERT_TRUE(train_in_world(config, numbers(), options).ends[0].has_value());
    config.max_steps = 50;
    const Trained rest = train_in_world(config, numbers(), options);
    ASSERT_TRUE(rest.ends[0].has_value()) << rest.ends[0].error().text();
    EXPECT_EQ(rest.ends[0]->resumed_from, 20);
    EXPECT_EQ(rest.weights[0], whole.weights[0]);
}

}  // namespace
}  // namespace lockstep
