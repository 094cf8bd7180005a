// Models that read text: they learn, are the same over strategies, and know what they cost.
#include "job/base/files.hpp"
#include "job/trainer/flops.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace lockstep {
namespace {

using test::TemporaryFolder;

// A task whose answer needs every byte of the source: short words, the other way round.
std::string reversed_words() {
    std::string out;
    std::uint32_t state = 1;
    for (int i = 0; i < 400; ++i) {
        std::string word;
        for (int letter = 0; letter < 3; ++letter) {
            state = state * 1'664'525U + 1'013'904'223U;
            word += static_cast<char>('a' + (state >> 24U) % 4U);
        }
        out += word + "\t" + std::string{word.rbegin(), word.rend()} + "\n";
    }
    return out;
}

// Encoder and decoder on two ranks, two such pairs in data parallel, against one device.
TEST(Pipeline, AnEncoderAndADecoderAnswerAsOnOneDevice) {
    const TemporaryFolder folder;
    ASSERT_TRUE(write_file_atomic(folder.path() / "pairs", reversed_words()).has_value());
    TrainConfig config;
    config.model = TrainModel::seq2seq;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    config.gradient_clip = 2.0;
    config.dataset = TrainDataset::pairs;
    config.dataset_path = (folder.path() / "pairs").string();
    config.context = 5;
    config.batch_size = 32;
    config.epochs = 50;
    config.max_steps = 30;
    config.learning_rate = 0.005;
    const Result<Dataset> data = load_dataset(config, {});
    ASSERT_TRUE(data.has_value()) << data.error().text();
    const Trained one = train_in_world(config, *data, {});
    ASSERT_TRUE(one.ends[0].has_value()) << one.ends[0].error().text();
    EXPECT_LT(one.losses().back(), one.losses().front() - 3.0);
    config.strategy = TrainStrategy::pipeline;
    config.stages = 2;
    config.batch_size = 16;
    TrainingOptions options;
    options.ranks = 4;
    const Trained four = train_in_world(config, *data, options);
    ASSERT_TRUE(four.ends[0].has_value()) << four.ends[0].error().text();
    expect_same(four.mean_losses(), one.losses(), 1e-3);
    EXPECT_NEAR(four.ends[0]->accuracy, one.ends[0]->accuracy, 0.02);
    // 2 · 5 + 1 places of each sample; four ranks that compute two at once.
    EXPECT_NEAR(four.ends[0]->tokens_per_second, 11.0 * four.ends[0]->samples_per_second, 1e-6);
    EXPECT_GT(four.ends[0]->mfu, 0.0);
    EXPECT_LT(four.ends[0]->mfu, 1.0);
}

// Six operations for each weight of a product and token, and attention's.
TEST(Flops, AGptsAreItsWeightsAndItsPlaces) {
    TrainConfig config;
    config.model = TrainModel::gpt;
    const ModelShape shape{ColumnType::index, {64}, 256};
    const TextCosts costs = text_costs(config, shape);
    EXPECT_EQ(costs.tokens, 64);
    double weights = 0.0;
    for (const ParameterSpec& each : parameters_of(model_layers(config, shape))) {
        if (each.shape.size() == 2 && !each.name.starts_with("embed.")) {
            weights += static_cast<double>(each.shape[0] * each.shape[1]);
        }
    }
    EXPECT_DOUBLE_EQ(costs.flops, 64.0 * (6.0 * weights + 12.0 * 4 * 64 * 128));
    config.model = TrainModel::mlp;
    EXPECT_EQ(text_costs(config, shape).tokens, 0);
}

TEST(Flops, ThisMachineReachesSome) {
    EXPECT_GT(measured_peak_flops(), 1e8);
    EXPECT_LT(measured_peak_flops(), 1e14);
}

}  // namespace
}  // namespace lockstep
