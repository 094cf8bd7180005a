// MobileNetV2 and what it came with: resized images, weights by name in and out.
// That it computes what torchvision's does, and reads its names,
// tests/integration/test_native_weights.py asks PyTorch itself.
#include "job/base/files.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/named_state.hpp"
#include "job/trainer/random.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

TrainConfig mobile() {
    TrainConfig config;
    config.model = TrainModel::mobilenet_v2;
    config.dropout = 0.0;
    return config;
}

const ModelShape kColoured{ColumnType::scaled, {32, 32, 3}, 10};

struct WholeState {
    std::unique_ptr<Model> model;
    std::vector<Layer> layers;

    explicit WholeState(const TrainConfig& config, const ModelShape& shape)
        : model(make_model(config, shape)), layers(model_layers(config, shape)) {}
    std::span<float> parameters() const { return model->parameters().values(); }
    std::vector<NamedTensor> named() const {
        return named_state(layers, parameters(), model->buffers());
    }
};

// The numbers that torchvision's documentation and Keras's summary (3,504,872 trainable) give.
TEST(MobileNetV2, HasAsManyParametersAsPublished) {
    for (const auto& [classes, count] : {std::pair{1000, 3'504'872}, {10, 2'236'682}}) {
        ModelShape shape = kColoured;
        shape.classes = classes;
        const std::unique_ptr<Model> model = make_model(mobile(), shape);
        EXPECT_EQ(model->parameters().count(), count);
        EXPECT_EQ(model->buffers().size(), 34'112U);  // Keras: not trainable
    }
}

TEST(MobileNetV2, HasTorchvisionsNames) {
    std::set<std::string> names;
    for (const NamedTensor& tensor : WholeState{mobile(), kColoured}.named()) {
        names.insert(tensor.name);
    }
    EXPECT_EQ(names.size(), 158U + 104U);  // state_dict() without its 52 counters
    for (const char* name :
         {"features.0.0.weight", "features.0.1.running_var", "features.1.conv.0.0.weight",
          "features.1.conv.1.weight", "features.1.conv.2.bias", "features.17.conv.2.weight",
          "features.17.conv.3.running_mean", "features.18.1.bias", "classifier.1.weight",
          "classifier.1.bias"}) {
        EXPECT_TRUE(names.contains(name)) << name;
    }
}

TEST(MobileNetV2, HalvesItsMapsFiveTimesAndShowsGreyInAllColours) {
    const std::unique_ptr<Model> model = make_model(mobile(), kColoured);
    const at::Tensor grey = at::rand({2, 1, 64, 64});
    const at::NoGradGuard none;
    EXPECT_TRUE(at::allclose(model->forward(grey, {}),
                             model->forward(grey.expand({2, 3, 64, 64}), {}), 1e-4, 1e-5));
    Model features{model_layers(mobile(), kColoured), 0, 0, 19};
    EXPECT_EQ(features.forward(at::rand({1, 3, 224, 224}), {}).sizes(),
              (std::vector<std::int64_t>{1, 1280, 7, 7}));
}

// One value of each channel has no variance: PyTorch's averages would be NaN from then on.
TEST(MobileNetV2, ABatchOfOnePixelLeavesTheAveragesAlone) {
    const std::unique_ptr<Model> model = make_model(mobile(), kColoured);
    Pass pass;
    pass.training = pass.batch_statistics = true;
    model->forward(at::rand({1, 3, 32, 32}), pass);
    EXPECT_TRUE(std::all_of(model->buffers().begin(), model->buffers().end(),
                            [](float value) { return std::isfinite(value); }));
}

TEST(MobileNetV2, IsCutIntoStagesAndTrainsAsOnOneDevice) {
    TrainConfig config = mobile();
    config.norm_mode = NormMode::eval;
    config.batch_size = 16;
    config.max_steps = 4;
    config.loader_workers = 0;
    const Trained one = train_in_world(config, few_digits(), {});
    ASSERT_TRUE(one.ends[0].has_value()) << one.ends[0].error().text();
    config.strategy = TrainStrategy::pipeline;
    TrainingOptions options;
    options.ranks = 3;
    const Trained three = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(three.ends[0].has_value()) << three.ends[0].error().text();
    expect_same(three.mean_losses(), one.losses(), 1e-4);
}

TEST(Resize, IsPyTorchsBilinear) {
    Random random{3};
    std::vector<std::uint8_t> pixels(7 * 5 * 3);
    std::generate(pixels.begin(), pixels.end(),
                  [&] { return static_cast<std::uint8_t>(random.below(256)); });
    const at::Tensor image =
        at::from_blob(pixels.data(), {1, 7, 5, 3}, at::kByte).to(at::kFloat).permute({0, 3, 1, 2}) /
        255.0;
    for (const auto& [rows, columns] : {std::pair{7, 5}, {14, 10}, {31, 9}, {3, 2}, {1, 1}}) {
        std::vector<float> got(static_cast<std::size_t>(rows * columns) * 3);
        kernels::resize(pixels.data(), 7, 5, 3, got.data(), static_cast<std::size_t>(rows),
                        static_cast<std::size_t>(columns));
        const at::Tensor want = at::upsample_bilinear2d(image, {rows, columns}, false, {}, {});
        EXPECT_TRUE(
            at::allclose(at::from_blob(got.data(), {1, rows, columns, 3}).permute({0, 3, 1, 2}),
                         want, 1e-5, 1e-6))
            << rows;
    }
}

TEST(Resize, TheLoaderGivesLargerImages) {
    SampleSet set = few_digits().train;
    resize_images(set, 56);
    Loader loader{set, 4, 1};
    loader.begin({5, 6, 7, 8});
    const Batch batch = loader.next();
    const at::Tensor large = tensor_of(batch.input, batch.size);
    EXPECT_EQ(large.sizes(), (std::vector<std::int64_t>{4, 1, 56, 56}));
    EXPECT_GT(large.max().item<float>(), 0.5F);
    EXPECT_LE(large.max().item<float>(), 1.0F);
    EXPECT_EQ(shape_of({set, set, 10}).sample, (std::vector<std::int64_t>{56, 56, 1}));
}

// What `named` is on the disk.
TensorFile stored(const TemporaryFolder& folder, const std::vector<NamedTensor>& named) {
    const std::filesystem::path path = folder.path() / "weights.safetensors";
    EXPECT_TRUE(replace_file(path, encode_safetensors(named, {})).has_value());
    Result<TensorFile> file = TensorFile::open(path);
    EXPECT_TRUE(file.has_value()) << file.error().text();
    return std::move(*file);
}

class NamedState : public testing::TestWithParam<TrainModel> {};

TEST_P(NamedState, WhatOneRunLeavesAnotherBeginsWith) {
    TrainConfig config = mobile();
    config.model = GetParam();
    const ModelShape shape = config.model == TrainModel::gpt
                                 ? ModelShape{ColumnType::index, {16}, 256}
                                 : ModelShape{ColumnType::scaled, {32, 32, 3}, 10};
    const WholeState from{config, shape};
    Random random{1};
    for (std::span<float> part : {from.parameters(), from.model->buffers()}) {
        std::generate(part.begin(), part.end(), [&] { return random.uniform(0.5F, 1.5F); });
    }
    const TemporaryFolder folder;
    const TensorFile file = stored(folder, from.named());
    config.seed = 5;
    const WholeState to{config, shape};
    const Result<ImportedState> got =
        import_state(file, to.layers, to.parameters(), to.model->buffers());
    ASSERT_TRUE(got.has_value()) << got.error().text();
    EXPECT_TRUE(got->fresh.empty());
    EXPECT_TRUE(got->unused.empty());
    const std::vector<NamedTensor> want = from.named();
    const std::vector<NamedTensor> now = to.named();
    ASSERT_EQ(now.size(), want.size());
    EXPECT_EQ(got->taken, want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(now[i].name, want[i].name);
        EXPECT_EQ(now[i].values, want[i].values) << now[i].name;
    }
    const at::NoGradGuard none;
    const at::Tensor x =
        config.model == TrainModel::gpt ? at::zeros({2, 16}, at::kLong) : at::rand({2, 3, 32, 32});
    EXPECT_TRUE(at::allclose(to.model->forward(x, {}), from.model->forward(x, {}), 1e-3, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(Models, NamedState,
                         testing::Values(TrainModel::mnist_convnet, TrainModel::mobilenet_v2,
                                         TrainModel::alexnet_split, TrainModel::gpt),
                         [](const auto& each) { return std::string{to_string(each.param)}; });

// Fine-tuning: torchvision's file has 1000 classes, and a counter beside every normalisation.
TEST(NamedState, AnotherHeadStaysRandomAndOnlyThat) {
    ModelShape shape = kColoured;
    shape.classes = 1000;
    std::vector<NamedTensor> named = WholeState{mobile(), shape}.named();
    named.push_back({"features.0.1.num_batches_tracked", {}, {3.0F}});
    named.push_back({"something.else", {1}, {3.0F}});
    const TemporaryFolder folder;
    const TensorFile file = stored(folder, named);
    TrainConfig config = mobile();
    config.seed = 9;
    const WholeState to{config, kColoured};
    const FlatRange head = to.model->parameters().range(to.model->parameters().size() - 2);
    const std::vector<float> before(to.parameters().begin(), to.parameters().end());
    const Result<ImportedState> got =
        import_state(file, to.layers, to.parameters(), to.model->buffers());
    ASSERT_TRUE(got.has_value()) << got.error().text();
    EXPECT_EQ(got->fresh,
              (std::vector<std::string>{"classifier.1.weight is [1000, 1280], must be [10, 1280]",
                                        "classifier.1.bias is [1000], must be [10]"}));
    EXPECT_EQ(got->unused, (std::vector<std::string>{"something.else"}));
    EXPECT_EQ(to.parameters()[head.offset], before[head.offset]);
    EXPECT_EQ(to.named()[0].values, named[0].values);
}

TEST(NamedState, OtherWeightsAreRefusedAndChangeNothing) {
    std::vector<NamedTensor> named = WholeState{mobile(), kColoured}.named();
    const TemporaryFolder folder;
    const WholeState to{mobile(), kColoured};
    const std::vector<float> before(to.parameters().begin(), to.parameters().end());
    const auto refusal = [&] {
        const TensorFile file = stored(folder, named);
        const Result<ImportedState> got =
            import_state(file, to.layers, to.parameters(), to.model->buffers());
        EXPECT_FALSE(got.has_value());
        EXPECT_TRUE(std::ranges::equal(before, to.parameters()));
        return got ? "" : got.error().message;
    };
    const NamedTensor first = named[0];
    named[0].shape = {3, 32, 3, 3};
    EXPECT_NE(refusal().find("features.0.0.weight is [3, 32, 3, 3], must be [32, 3, 3, 3]"),
              std::string::npos);
    named.erase(named.begin(), named.begin() + 2);
    EXPECT_NE(refusal().find("features.0.0.weight is missing, and 1 more"), std::string::npos);
    named = WholeState{TrainConfig{}, {ColumnType::scaled, {28, 28, 1}, 10}}.named();
    EXPECT_NE(refusal().find("not the weights of this model"), std::string::npos);
}

// The averages that norm_layer() keeps still hold a part of where they started; what others read
// does not.
TEST(NamedState, MovingAveragesAreWrittenAsTheyAreUsed) {
    const WholeState state{TrainConfig{}, {ColumnType::scaled, {28, 28, 1}, 10}};
    Pass pass;
    pass.training = pass.batch_statistics = true;
    const at::Tensor x = at::rand({4, 1, 28, 28});
    state.model->forward(x, pass);
    const std::vector<NamedTensor> named = state.named();
    const auto mean = std::find_if(named.begin(), named.end(), [](const NamedTensor& tensor) {
        return tensor.name == "norm_1.moving_mean";
    });
    ASSERT_NE(mean, named.end());
    const at::Tensor y = at::conv2d(x, state.model->parameters()[0], {}, 1, 1).mean({0, 2, 3});
    for (std::int64_t channel = 0; channel < 12; ++channel) {
        EXPECT_NEAR(mean->values[static_cast<std::size_t>(channel)], y[channel].item<float>(),
                    1e-4);
    }
}

}  // namespace
}  // namespace lockstep
