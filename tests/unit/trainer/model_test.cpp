#include "job/trainer/model.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace lockstep {
namespace {

const ModelShape kDigits{ColumnType::scaled, {28, 28, 1}, 10};

at::Tensor images(std::int64_t count) {
    at::manual_seed(4);
    return at::rand({count, 1, 28, 28}).contiguous(at::MemoryFormat::ChannelsLast);
}

// Keras's model.summary() for this network: 49,242 trainable (108 + 12 + 10,368 + 24 + 27,680 + 32
// + 8,448 + 2,570), 136 not (two moving moments for 12, 24 and 32 channels).
TEST(Model, TheConvnetHasAsManyParametersAsKerass) {
    TrainConfig config;
    const std::unique_ptr<Model> model = make_model(config, kDigits);
    EXPECT_EQ(model->parameters().count(), 49'242);
    EXPECT_EQ(model->buffers().size(), 136U + 3U);  // and three counters
}

TEST(Model, TheConvnetIsLayerForLayerTheGuides) {
    TrainConfig config;
    config.dropout = 0.0;
    const std::unique_ptr<Model> model = make_model(config, kDigits);
    const FlatParameters& p = model->parameters();
    const at::Tensor x = images(8);
    const auto norm = [](const at::Tensor& in, const at::Tensor& beta) {
        return at::relu(
            at::batch_norm(in, at::ones_like(beta), beta, {}, {}, true, 0.01, 1e-3, false));
    };
    at::Tensor want = norm(at::conv2d(x, p[0], {}, 1, 1), p[1]);
    EXPECT_EQ(want.sizes(), (std::vector<std::int64_t>{8, 12, 28, 28}));
    want = norm(at::conv2d(want, p[2], {}, 2), p[3]);
    EXPECT_EQ(want.sizes(), (std::vector<std::int64_t>{8, 24, 12, 12}));
    want = norm(at::conv2d(want, p[4], p[5], 2, 2), p[6]);
    EXPECT_EQ(want.sizes(), (std::vector<std::int64_t>{8, 32, 6, 6}));
    want = at::relu(at::linear(at::adaptive_avg_pool2d(want, {1, 1}).flatten(1), p[7], p[8]));
    want = at::linear(want, p[9], p[10]);
    Pass pass;
    pass.training = pass.batch_statistics = true;
    const at::Tensor got = model->forward(x, pass);
    EXPECT_EQ(got.sizes(), (std::vector<std::int64_t>{8, 10}));
    EXPECT_TRUE(at::allclose(got, want, 1e-4, 1e-4));

    at::Tensor loss = at::cross_entropy_loss(want, at::arange(8));
    std::vector<at::Tensor> gradients;
    loss.backward();
    for (std::size_t i = 0; i < p.size(); ++i) {
        gradients.push_back(p[i].grad().clone());
    }
    model->parameters().zero_gradients();
    at::cross_entropy_loss(got, at::arange(8)).backward();
    for (std::size_t i = 0; i < p.size(); ++i) {
        // As a whole: a value within rounding of a ReLU's corner may fall on either side. The bias
        // before a normalisation has no gradient but rounding.
        const float error = (p[i].grad() - gradients[i]).norm().item<float>();
        EXPECT_LT(error, 1e-2F * gradients[i].norm().item<float>() + 1e-4F) << i;
    }
}

TEST(Model, WeightsAreGlorotUniformAndDependOnTheSeed) {
    TrainConfig config;
    const std::unique_ptr<Model> a = make_model(config, kDigits);
    const std::unique_ptr<Model> b = make_model(config, kDigits);
    config.seed = 1;
    const std::unique_ptr<Model> c = make_model(config, kDigits);
    EXPECT_TRUE(std::ranges::equal(a->parameters().values(), b->parameters().values()));
    EXPECT_FALSE(std::ranges::equal(a->parameters().values(), c->parameters().values()));
    // conv_2: fan_in 36 · 12, fan_out 36 · 24.
    const at::Tensor kernel = a->parameters()[2];
    const float bound = std::sqrt(6.0F / (36.0F * 36.0F));
    EXPECT_LE(kernel.abs().max().item<float>(), bound);
    EXPECT_GT(kernel.abs().max().item<float>(), 0.99F * bound);
    EXPECT_NEAR(kernel.mean().item<float>(), 0.0F, 0.02F * bound);
    EXPECT_EQ(a->parameters()[1].abs().max().item<float>(), 0.0F);
    EXPECT_EQ(a->parameters()[5].abs().max().item<float>(), 0.0F);
}

TEST(Model, TensorsAreViewsOfTheFlatBuffers) {
    const std::unique_ptr<Model> model = make_model({}, kDigits);
    FlatParameters& parameters = model->parameters();
    for (float& value : parameters.values()) {
        value = 2.0F;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(parameters[i].min().item<float>(), 2.0F);
        EXPECT_EQ(parameters.range(i).offset % 16, 0U);
    }
    model->forward(images(2), {}).sum().backward();
    double sum = 0.0;
    for (const float value : parameters.gradients()) {
        sum += std::abs(static_cast<double>(value));
    }
    EXPECT_GT(sum, 0.0);
    parameters.zero_gradients();
    EXPECT_EQ(parameters[10].grad().abs().max().item<float>(), 0.0F);
}

// A pipeline's stages have the weights that the whole network has at their place.
TEST(Model, PartsOfANetworkMakeTheWhole) {
    TrainConfig config;
    config.dropout = 0.0;
    const std::unique_ptr<Model> whole = make_model(config, kDigits);
    const std::size_t layers = model_layers(config, kDigits).size();
    Model first{model_layers(config, kDigits), 0, 0, 4};
    Model second{model_layers(config, kDigits), 0, 4, layers - 4};
    const at::Tensor x = images(4);
    EXPECT_TRUE(at::equal(second.forward(first.forward(x, {}), {}), whole->forward(x, {})));
    EXPECT_EQ(first.parameters().count() + second.parameters().count(), 49'242);
    EXPECT_EQ(first.buffers().size() + second.buffers().size(), whole->buffers().size());
}

// 96 · 75 + 256 · 48 · 25 + 384 · 256 · 9 + 384 · 192 · 9 + 256 · 192 · 9 + 4096 · 1024 + 1024 ·
// 1024
// + 1024 · 10 weights and 96 + 256 + 384 + 384 + 256 + 1024 + 1024 + 10 biases.
TEST(Model, TheHalvesOfAlexnetDoNotSeeEachOtherWhereTheyShouldNot) {
    TrainConfig config;
    config.model = TrainModel::alexnet_split;
    const ModelShape shape{ColumnType::scaled, {32, 32, 3}, 10};
    std::vector<Layer> layers = model_layers(config, shape);
    Model second{model_layers(config, shape), 0, 1, 1};  // conv_2
    at::manual_seed(7);
    at::Tensor x = at::rand({1, 96, 16, 16});
    const at::Tensor before = second.forward(x, {});
    x.narrow(1, 0, 48).zero_();  // the first half's channels
    const at::Tensor after = second.forward(x, {});
    EXPECT_TRUE(at::equal(before.narrow(1, 128, 128), after.narrow(1, 128, 128)));
    EXPECT_FALSE(at::equal(before.narrow(1, 0, 128), after.narrow(1, 0, 128)));
    std::int64_t count = 0;
    for (const FlatRange& range : flat_layout(parameters_of(layers)).ranges) {
        count += static_cast<std::int64_t>(range.count);
    }
    EXPECT_EQ(count, 7'200 + 307'200 + 884'736 + 663'552 + 442'368 + 4'194'304 + 1'048'576 +
                         10'240 + 3'434);
}

// A place of the text must not see what comes after it.
TEST(Model, TheTransformerDoesNotLookAhead) {
    TrainConfig config;
    config.model = TrainModel::gpt;
    const std::unique_ptr<Model> model = make_model(config, {ColumnType::index, {8}, 256});
    at::Tensor x = at::arange(16, at::kLong).view({2, 8});
    const at::Tensor before = model->forward(x, {});
    EXPECT_EQ(before.sizes(), (std::vector<std::int64_t>{2, 8, 256}));
    x[1][5] = 200;
    const at::Tensor after = model->forward(x, {});
    EXPECT_TRUE(at::allclose(before.narrow(1, 0, 5), after.narrow(1, 0, 5)));
    EXPECT_FALSE(at::allclose(before[1][5], after[1][5]));
    EXPECT_TRUE(at::allclose(before[0], after[0]));
}

// Two pairs as data/pairs.cpp stores them, for a context of 4.
at::Tensor two_pairs() {
    return at::tensor({'a', 'b', 0, 0, 2, 'x', 'y', 'z', 0,  //
                       'c', 'd', 'e', 'f', 2, 'u', 0, 0, 0},
                      at::kLong)
        .view({2, 9});
}
const ModelShape kPairs{ColumnType::index, {9}, 256};

TEST(Model, TheDecoderSeesAllOfTheSourceAndNoTargetThatIsToCome) {
    TrainConfig config;
    config.model = TrainModel::seq2seq;
    const std::unique_ptr<Model> model = make_model(config, kPairs);
    const at::Tensor before = model->forward(two_pairs(), {});
    EXPECT_EQ(before.sizes(), (std::vector<std::int64_t>{2, 5, 256}));
    at::Tensor x = two_pairs();
    x[0][7] = 'q';  // the third byte of the target, which the fourth place reads
    at::Tensor after = model->forward(x, {});
    EXPECT_TRUE(at::allclose(before[0].narrow(0, 0, 3), after[0].narrow(0, 0, 3)));
    EXPECT_FALSE(at::allclose(before[0][3], after[0][3]));
    x = two_pairs();
    x[1][0] = 'q';
    after = model->forward(x, {});
    EXPECT_FALSE(at::allclose(before[1][0], after[1][0]));
    EXPECT_TRUE(at::allclose(before[0], after[0]));
}

// A longer context pads the texts with more that must not be seen.
TEST(Model, TheDecoderDoesNotSeeHowFarASourceIsPadded) {
    TrainConfig config;
    config.model = TrainModel::seq2seq;
    const at::Tensor narrow = make_model(config, kPairs)->forward(two_pairs(), {});
    const at::Tensor none = at::zeros({2, 2}, at::kLong);
    const at::Tensor wide =
        at::cat({two_pairs().narrow(1, 0, 4), none, two_pairs().narrow(1, 4, 5), none}, /*dim=*/1);
    const at::Tensor padded = make_model(config, {ColumnType::index, {13}, 256})->forward(wide, {});
    EXPECT_TRUE(at::allclose(narrow, padded.narrow(1, 0, 5), 1e-4, 1e-5));
}

// The encoder's states are those of PyTorch's GRU with the same weights.
TEST(Model, TheEncoderIsPyTorchsGru) {
    TrainConfig config;
    config.model = TrainModel::seq2seq;
    Model encoder{model_layers(config, kPairs), 0, 0, 2};
    const at::NoGradGuard none;
    for (std::size_t i = 0; i < encoder.parameters().size(); ++i) {
        encoder.parameters()[i].uniform_(-0.5, 0.5);
    }
    const FlatParameters& p = encoder.parameters();
    const at::Tensor states =
        encoder.forward(two_pairs(), {}).narrow(1, 0, 4 * 128).reshape({2, 4, 128});
    const at::Tensor read = at::embedding(p[0], two_pairs().narrow(1, 0, 4));
    const at::Tensor expected = std::get<0>(at::gru(
        read, at::zeros({1, 2, 128}), {p[1], p[2], p[3], p[4]}, true, 1, 0.0, false, false, true));
    EXPECT_TRUE(at::allclose(states, expected, 1e-4, 1e-5));
}

// Where only some are asked, every sample weighs the same: the parts of a batch make the whole.
TEST(Model, TheLossOfABatchIsTheMeanOverItsSamples) {
    const at::Tensor logits = at::randn({4, 3, 10});
    at::Tensor targets = at::randint(10, {4, 3}, at::kLong);
    EXPECT_NEAR(mean_loss(logits, targets).item<double>(),
                at::cross_entropy_loss(logits.view({12, 10}), targets.view({12})).item<double>(),
                1e-6);
    targets[0][1] = targets[0][2] = targets[3][0] = kNoAnswer;
    const auto part = [&](std::int64_t begin, std::int64_t size) {
        return mean_loss(logits.narrow(0, begin, size), targets.narrow(0, begin, size))
            .item<double>();
    };
    EXPECT_NEAR(part(0, 4), (part(0, 1) + 3.0 * part(1, 3)) / 4.0, 1e-6);
    EXPECT_NEAR(part(0, 1),
                at::cross_entropy_loss(logits[0].narrow(0, 0, 1), targets[0].narrow(0, 0, 1))
                    .item<double>(),
                1e-6);
}

TEST(Model, TheMlpHasItsParametersAndLearnsFromEveryOne) {
    TrainConfig config;
    config.model = TrainModel::mlp;
    const std::unique_ptr<Model> model = make_model(config, kDigits);
    EXPECT_EQ(model->parameters().count(), 784 * 256 + 256 + 2560 + 10);
    EXPECT_TRUE(model->buffers().empty());
    Pass pass;
    pass.training = true;
    at::cross_entropy_loss(model->forward(images(8), pass), at::arange(8)).backward();
    for (std::size_t i = 0; i < model->parameters().size(); ++i) {
        EXPECT_GT(model->parameters()[i].grad().abs().max().item<float>(), 0.0F) << i;
    }
}

}  // namespace
}  // namespace lockstep
