#include "job/model/train_config.hpp"

#include "job/base/json.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

struct Read {
    TrainConfig config;
    std::vector<FieldError> errors;
};

Read read(const std::string& text) {
    Read out;
    const Result<Json> json = parse_json(text);
    EXPECT_TRUE(json.has_value()) << text;
    read_train_config(*json, "/train", out.config, out.errors);
    return out;
}

TEST(TrainConfig, AnEmptyObjectKeepsTheDefaults) {
    const Read got = read("{}");
    EXPECT_TRUE(got.errors.empty());
    EXPECT_EQ(got.config, TrainConfig{});
}

TEST(TrainConfig, EveryFieldIsRead) {
    const Read got = read(R"({"model":"mlp","dataset":{"name":"mnist","path":"/data"},
        "strategy":"single","devices":"cpu","epochs":3,"max_steps":7,"batch_size":16,
        "learning_rate":0.5,"scale_learning_rate":true,"optimizer":"sgd","momentum":0.5,"seed":9,
        "precision":"fp32","accumulate":4,"dropout":0.25,"loader_workers":1,"shuffle":false,
        "checkpoint_every_steps":5,"log_every_steps":10})");
    ASSERT_TRUE(got.errors.empty()) << got.errors.front().pointer << got.errors.front().message;
    TrainConfig want;
    want.model = TrainModel::mlp;
    want.dataset = TrainDataset::mnist;
    want.dataset_path = "/data";
    want.strategy = TrainStrategy::single;
    want.epochs = 3;
    want.max_steps = 7;
    want.batch_size = 16;
    want.learning_rate = 0.5;
    want.scale_learning_rate = true;
    want.optimizer = TrainOptimizer::sgd;
    want.momentum = 0.5;
    want.seed = 9;
    want.accumulate = 4;
    want.dropout = 0.25;
    want.loader_workers = 1;
    want.shuffle = false;
    want.checkpoint_every_steps = 5;
    want.log_every_steps = 10;
    EXPECT_EQ(got.config, want);
}

TEST(TrainConfig, WhatIsWrittenReadsBackAsTheSame) {
    for (const char* text :
         {"{}", R"({"optimizer":"sgd","momentum":0.1,"strategy":"single"})",
          R"({"model":"mlp","dataset":{"name":"mnist","path":"x"},"seed":4})",
          R"({"norm_mode":"eval","dropout":0,"train_samples":10,"test_samples":5})"}) {
        const Read first = read(text);
        ASSERT_TRUE(first.errors.empty()) << text;
        const Read second = read(dump_json(to_json(first.config)));
        EXPECT_TRUE(second.errors.empty())
            << text << ": " << second.errors.front().pointer << second.errors.front().message;
        EXPECT_EQ(second.config, first.config) << text;
    }
}

struct Refusal {
    const char* text;
    FieldError error;
};

class TrainConfigRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(TrainConfigRefuses, WithThePathAndTheReason) {
    const Read got = read(GetParam().text);
    ASSERT_EQ(got.errors.size(), 1U) << GetParam().text;
    EXPECT_EQ(got.errors[0].pointer, GetParam().error.pointer);
    EXPECT_EQ(got.errors[0].message, GetParam().error.message);
}

INSTANTIATE_TEST_SUITE_P(
    NotAvailableYet, TrainConfigRefuses,
    testing::Values(Refusal{R"({"model":"mobilenet_v2"})",
                            {"/train/model", "\"mobilenet_v2\" is not available yet"}},
                    Refusal{R"({"model":"alexnet_split"})",
                            {"/train/model", "\"alexnet_split\" is not available yet"}},
                    Refusal{R"({"dataset":{"name":"cifar10"}})",
                            {"/train/dataset/name", "\"cifar10\" is not available yet"}},
                    Refusal{R"({"strategy":"parameter_server"})",
                            {"/train/strategy", "\"parameter_server\" is not available yet"}},
                    Refusal{R"({"strategy":"pipeline"})",
                            {"/train/strategy", "\"pipeline\" is not available yet"}},
                    Refusal{R"({"all_reduce":"hierarchical"})",
                            {"/train/all_reduce", "\"hierarchical\" is not available yet"}},
                    Refusal{R"({"precision":"bf16"})",
                            {"/train/precision", "\"bf16\" is not available yet"}},
                    Refusal{R"({"devices":"gpu:0,1"})",
                            {"/train/devices", "\"gpu:0,1\" is not available yet"}}));

INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, TrainConfigRefuses,
    testing::Values(Refusal{R"({"momentum":0.5})",
                            {"/train/momentum", "has no effect with optimizer adam"}},
                    Refusal{R"({"strategy":"single","all_reduce":"ring"})",
                            {"/train/all_reduce", "has no effect with strategy single"}},
                    Refusal{R"({"model":"mlp","norm_mode":"eval"})",
                            {"/train/norm_mode",
                             "has no effect with model mlp, which has no normalisation layer"}},
                    Refusal{R"({"dataset":{"name":"mnist","path":"p"},"train_samples":5})",
                            {"/train/train_samples", "has no effect with dataset mnist"}}));

INSTANTIATE_TEST_SUITE_P(
    Wrong, TrainConfigRefuses,
    testing::Values(
        Refusal{R"({"batch_size":0})", {"/train/batch_size", "must be 1..65536"}},
        Refusal{R"({"epochs":"two"})", {"/train/epochs", "must be an integer"}},
        Refusal{R"({"optimizer":"lion"})", {"/train/optimizer", "must be one of: adam, sgd"}},
        Refusal{R"({"devices":"tpu"})", {"/train/devices", "must be one of: auto, cpu"}},
        Refusal{R"({"dataset":{"name":"mnist"}})",
                {"/train/dataset/path", "mnist needs the folder that holds its four IDX files"}},
        Refusal{R"({"warmup":3})", {"/train/warmup", "unknown field"}}));

}  // namespace
}  // namespace lockstep
