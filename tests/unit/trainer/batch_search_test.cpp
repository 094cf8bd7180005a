#include "job/trainer/batch_search.hpp"

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

// 1000 bytes and 10 for each sample.
std::int64_t linear(std::int64_t samples) {
    return 1'000 + 10 * samples;
}

TEST(BatchSearch, ItDoublesForAsLongAsItFits) {
    EXPECT_EQ(largest_batch({8, 65'536, 1'000 + 10 * 64}, linear).value_or(0), 64);
    EXPECT_EQ(largest_batch({8, 65'536, 1'000 + 10 * 64 - 1}, linear).value_or(0), 32);
    EXPECT_EQ(largest_batch({8, 65'536, 1'000 + 10 * 8}, linear).value_or(0), 8);
    EXPECT_EQ(largest_batch({8, 100, 1'000'000'000}, linear).value_or(0), 64);
    EXPECT_EQ(largest_batch({60, 100, 1'000'000'000}, linear).value_or(0), 60);
    const Result<std::int64_t> none = largest_batch({8, 100, 1'000}, linear);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code, Errc::exhausted);
}

// Up to 52 samples the weights' gradients are what is most; the first two batches do not show what
// more samples take.
TEST(BatchSearch, SmallBatchesThatTheWeightsOutweighDoNotTell) {
    const auto bent = [](std::int64_t samples) {
        return std::max<std::int64_t>(1'000 + samples, 20 * samples);
    };
    EXPECT_EQ(largest_batch({8, 65'536, 20 * 1'024}, bent).value_or(0), 1'024);
    EXPECT_EQ(largest_batch({8, 65'536, 20 * 1'024 - 1}, bent).value_or(0), 512);
}

TEST(BatchSearch, NothingIsTriedThatIsNotToldToFit) {
    std::int64_t largest = 0;
    const auto watched = [&](std::int64_t samples) {
        largest = std::max(largest, linear(samples));
        return linear(samples);
    };
    EXPECT_EQ(largest_batch({8, 65'536, 80'000}, watched).value_or(0), 4'096);
    EXPECT_LE(largest, 10'000);
    EXPECT_GT(largest, 5'000);
    largest = 0;
    EXPECT_EQ(largest_batch({1'024, 65'536, linear(1'024)}, watched).value_or(0), 1'024);
    EXPECT_EQ(largest, linear(1'024));
}

// What the search tells from two batches is what one takes that is eight times as large, once they
// outweigh the weights: 0.8 MB of the MLP.
TEST(BatchSearch, AStepsMemoryGrowsWithItsSamples) {
    TrainConfig config;
    for (const auto& [model, samples] :
         {std::pair{TrainModel::mnist_convnet, 64}, {TrainModel::mlp, 512}}) {
        config.model = model;
        const auto layers = [&] { return model_layers(config, shape_of(few_digits())); };
        for (const BatchTrial& trial : {BatchTrial{layers(), 0, SIZE_MAX}, {layers(), 2, 2}}) {
            const BatchAttempt attempt = batch_attempt(config, trial, few_digits().train);
            const auto one = static_cast<double>(attempt(samples));
            const auto two = static_cast<double>(attempt(2 * samples));
            const auto many = static_cast<double>(attempt(16 * samples));
            EXPECT_GT(two, one);
            EXPECT_NEAR(many, one + 15.0 * (two - one), 0.1 * many) << to_string(model);
        }
    }
}

TEST(BatchSearch, AMachinesMemoryIsSharedOutAmongItsRanks) {
    EXPECT_GT(memory_share(1), 0);
    EXPECT_NEAR(static_cast<double>(memory_share(4)), static_cast<double>(memory_share(1)) / 4.0,
                static_cast<double>(memory_share(1)) / 8.0);
}

// 320 samples are there for each of two ranks; memory is not what ends the search.
TEST(BatchSearch, ARunTakesTheLargestBatchAndScalesItsRateAndKeepsItWhenItGoesOn) {
    const TemporaryFolder folder;
    TrainConfig config;
    config.model = TrainModel::mlp;
    config.batch_size = 16;
    config.find_batch_size = true;
    config.scale_learning_rate = true;
    config.learning_rate = 0.001;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    config.max_steps = 1;
    TrainingOptions options;
    options.ranks = 2;
    options.checkpoints = folder.path();
    const Trained two = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(two.ends[0].has_value()) << two.ends[0].error().text();
    for (const std::size_t rank : {0U, 1U}) {
        EXPECT_EQ(two.ends[rank]->batch_size, 256);
        EXPECT_EQ(two.steps[rank][0].samples, 256);
        EXPECT_DOUBLE_EQ(two.steps[rank][0].learning_rate, 0.001 * 2 * 16);
    }
    config.max_steps = 0;
    config.epochs = 1;
    options.ranks = 1;
    const Trained on = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(on.ends[0].has_value()) << on.ends[0].error().text();
    EXPECT_EQ(on.ends[0]->resumed_from, 1);
    EXPECT_EQ(on.steps[0][0].samples, 128);  // 640 − 2 · 256, where 512 would fit now
}

TEST(BatchSearch, AStageLooksAtItsOwnLayers) {
    TrainConfig config;
    config.model = TrainModel::mlp;
    config.strategy = TrainStrategy::pipeline;
    config.batch_size = 16;
    config.find_batch_size = true;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    config.max_steps = 1;
    TrainingOptions options;
    options.ranks = 3;
    const Trained three = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(three.ends[0].has_value()) << three.ends[0].error().text();
    EXPECT_EQ(three.ends[2]->batch_size, 512);
}

}  // namespace
}  // namespace lockstep
