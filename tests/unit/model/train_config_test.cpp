#include "job/model/spec/train_config.hpp"

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
        "find_batch_size":true,"learning_rate":0.5,"scale_learning_rate":true,"optimizer":"sgd","momentum":0.5,"seed":9,
        "precision":"fp32","accumulate":4,"weight_decay":0.01,
        "gradient_clip":1.5,"schedule":"cosine","warmup_steps":6,"dropout":0.25,"loader_workers":1,"shuffle":false,
        "checkpoint_every_steps":5,"log_every_steps":10})");
    ASSERT_TRUE(got.errors.empty()) << got.errors.front().pointer << got.errors.front().message;
    TrainConfig want;
    want.model = TrainModel::mlp;
    want.dataset = TrainDataset::mnist;
    want.dataset_path = "/data";
    want.strategy = TrainStrategy::single;
    want.devices = TrainDevices::cpu;
    want.epochs = 3;
    want.max_steps = 7;
    want.batch_size = 16;
    want.find_batch_size = true;
    want.learning_rate = 0.5;
    want.scale_learning_rate = true;
    want.optimizer = TrainOptimizer::sgd;
    want.momentum = 0.5;
    want.seed = 9;
    want.accumulate = 4;
    want.weight_decay = 0.01;
    want.gradient_clip = 1.5;
    want.schedule = TrainSchedule::cosine;
    want.warmup_steps = 6;
    want.dropout = 0.25;
    want.loader_workers = 1;
    want.shuffle = false;
    want.checkpoint_every_steps = 5;
    want.log_every_steps = 10;
    EXPECT_EQ(got.config, want);
}

TEST(TrainConfig, WhatIsWrittenReadsBackAsTheSame) {
    for (
        const char* text :
        {"{}", R"({"optimizer":"sgd","momentum":0.1,"strategy":"single"})",
         R"({"model":"mlp","dataset":{"name":"mnist","path":"x"},"seed":4})",
         R"({"strategy":"pipeline","stages":2,"micro_batches":8})",
         R"({"strategy":"parameter_server","update":"async"})",
         R"({"strategy":"central_storage","devices":"cpu:0,1,2"})",
         R"({"strategy":"central_storage","devices":"gpu:3,0,2"})",
         R"({"strategy":"replicated","devices":"gpu"})", R"({"devices":"gpu:1"})",
         R"({"strategy":"pipeline","devices":"gpu:1,0","precision":"fp16"})",
         R"({"model":"gpt","dataset":{"name":"text","path":"t"},"context":32,"precision":"bf16"})",
         R"({"all_reduce":"hierarchical"})",
         R"({"model":"linear","dataset":{"name":"table","path":"t"}})",
         R"({"model":"mlp","dataset":{"name":"table","path":"t"},"loss":"huber"})",
         R"({"model":"mobilenet_v2","dataset":{"name":"cifar10","path":"p","resize":224},"weights":"w","export":"none"})",
         R"({"model":"mobilenet_v2","dataset":{"name":"images","path":"p","augment":false},"loader_workers":64})",
         R"({"model":"mobilenet_v2","norm_mode":"eval","dropout":0.5})",
         R"({"optimizer":"lamb","weight_decay":0.1,"schedule":"linear","warmup_steps":9})",
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
    friend void PrintTo(const Refusal& one, std::ostream* out) { *out << one.text; }
};

constexpr const char* kDevices =
    "must be one of: auto, cpu, gpu, gpu:0,1 and other numbers below 64, none twice, cpu:0,1 and "
    "so on to cpu:0,…,63";

class TrainConfigRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(TrainConfigRefuses, WithThePathAndTheReason) {
    const Read got = read(GetParam().text);
    ASSERT_EQ(got.errors.size(), 1U) << GetParam().text;
    EXPECT_EQ(got.errors[0].pointer, GetParam().error.pointer);
    EXPECT_EQ(got.errors[0].message, GetParam().error.message);
}

INSTANTIATE_TEST_SUITE_P(
    OnGpus, TrainConfigRefuses,
    testing::Values(Refusal{R"({"precision":"fp16","devices":"cpu"})",
                            {"/train/precision", "fp16 needs a GPU; on the CPU use bf16"}},
                    Refusal{R"({"devices":"gpu:0,0"})", {"/train/devices", kDevices}},
                    Refusal{R"({"devices":"gpu:"})", {"/train/devices", kDevices}},
                    Refusal{R"({"devices":"gpu:01"})", {"/train/devices", kDevices}},
                    Refusal{R"({"devices":"gpu:64"})", {"/train/devices", kDevices}},
                    Refusal{R"({"devices":"gpus"})", {"/train/devices", kDevices}},
                    Refusal{R"({"devices":"gpu:2,0,1","strategy":"replicated","batch_size":2})",
                            {"/train/devices", "3 devices for a batch_size of 2"}},
                    Refusal{R"({"devices":"gpu:0","strategy":"parameter_server"})",
                            {"/train/devices",
                             "strategy parameter_server gives each worker an equal share of its "
                             "node's GPUs, and the servers none: gpu, without numbers"}}));

INSTANTIATE_TEST_SUITE_P(
    WithoutEffect, TrainConfigRefuses,
    testing::Values(
        Refusal{R"({"momentum":0.5})", {"/train/momentum", "has no effect with optimizer adam"}},
        Refusal{R"({"strategy":"single","all_reduce":"ring"})",
                {"/train/all_reduce", "has no effect with strategy single"}},
        Refusal{R"({"strategy":"pipeline","all_reduce":"ring"})",
                {"/train/all_reduce", "has no effect with strategy pipeline"}},
        Refusal{R"({"update":"async"})",
                {"/train/update", "has no effect with strategy data_parallel"}},
        Refusal{R"({"stages":2})", {"/train/stages", "has no effect with strategy data_parallel"}},
        Refusal{R"({"devices":"cpu:0,1"})",
                {"/train/devices",
                 "a rank has one device with strategy data_parallel: "
                 "only replicated and central_storage have several"}},
        Refusal{
            R"({"model":"mlp","norm_mode":"eval"})",
            {"/train/norm_mode", "has no effect with model mlp, which has no batch normalisation"}},
        Refusal{R"({"dataset":{"name":"mnist","path":"p"},"train_samples":5})",
                {"/train/train_samples", "has no effect with dataset mnist"}}));

INSTANTIATE_TEST_SUITE_P(
    Wrong, TrainConfigRefuses,
    testing::Values(
        Refusal{R"({"batch_size":0})", {"/train/batch_size", "must be 1..65536"}},
        Refusal{R"({"epochs":"two"})", {"/train/epochs", "must be an integer"}},
        Refusal{R"({"optimizer":"lion"})",
                {"/train/optimizer", "must be one of: adam, sgd, adamw, lamb"}},
        Refusal{R"({"devices":"tpu"})", {"/train/devices", kDevices}},
        Refusal{R"({"model":"gpt"})",
                {"/train/model", "gpt reads text, not images: it needs dataset text"}},
        Refusal{R"({"dataset":{"name":"text","path":"t"}})",
                {"/train/model", "mnist_convnet reads images, not text"}},
        Refusal{
            R"({"model":"seq2seq"})",
            {"/train/model", "seq2seq reads pairs of texts, not images: it needs dataset pairs"}},
        Refusal{R"({"model":"gpt","dataset":{"name":"pairs","path":"t"}})",
                {"/train/model", "gpt reads text, not pairs of texts: it needs dataset text"}},
        Refusal{R"({"dataset":{"name":"pairs"},"model":"seq2seq"})",
                {"/train/dataset/path", "pairs needs the file of its lines, source TAB target"}},
        Refusal{R"({"model":"seq2seq","dataset":{"name":"pairs","path":"t"},"dropout":0.1})",
                {"/train/dropout", "has no effect with model seq2seq, which has none"}},
        Refusal{R"({"model":"gpt","dataset":{"name":"table","path":"t"}})",
                {"/train/model", "gpt reads text, not tables: it needs dataset text"}},
        Refusal{
            R"({"dataset":{"name":"table","path":"t"}})",
            {"/train/model", "mnist_convnet reads images, not tables: linear and mlp read them"}},
        Refusal{R"({"model":"linear","dataset":{"name":"table"}})",
                {"/train/dataset/path", "table needs the file of its rows"}},
        Refusal{
            R"({"model":"linear","dataset":{"name":"table","path":"t"},"loss":"cross_entropy"})",
            {"/train/loss",
             "cross_entropy is for classes; a table's last column has numbers: mse or huber"}},
        Refusal{R"({"model":"linear","loss":"mse"})",
                {"/train/loss", "mse is for the numbers of a table; this data set has classes"}},
        Refusal{R"({"model":"linear","dropout":0.1})",
                {"/train/dropout", "has no effect with model linear, which has none"}},
        Refusal{R"({"model":"mlp","dataset":{"name":"table","path":"t","resize":9}})",
                {"/train/dataset/resize", "has no effect with dataset table, which has no images"}},
        Refusal{R"({"context":5})", {"/train/context", "has no effect with dataset digits"}},
        Refusal{R"({"strategy":"replicated","devices":"cpu:0,2"})", {"/train/devices", kDevices}},
        Refusal{R"({"strategy":"replicated","devices":"cpu:0,1,2","batch_size":2})",
                {"/train/devices", "3 devices for a batch_size of 2"}},
        Refusal{R"({"strategy":"pipeline","batch_size":30})",
                {"/train/micro_batches", "batch_size 30 is not a multiple of 4"}},
        Refusal{
            R"({"dataset":{"name":"cifar10"}})",
            {"/train/dataset/path", "cifar10 needs the folder that holds its six binary files"}},
        Refusal{R"({"dataset":{"name":"images"}})",
                {"/train/dataset/path", "images needs the folder that holds train and val"}},
        Refusal{R"({"dataset":{"name":"cifar10","path":"p","augment":false}})",
                {"/train/dataset/augment", "has no effect with dataset cifar10"}},
        Refusal{R"({"dataset":{"name":"mnist"}})",
                {"/train/dataset/path", "mnist needs the folder that holds its four IDX files"}},
        Refusal{R"({"model":"gpt","dataset":{"name":"text","path":"t","resize":9}})",
                {"/train/dataset/resize", "has no effect with dataset text, which has no images"}},
        Refusal{R"({"warmup":3})", {"/train/warmup", "unknown field"}}));

TEST(TrainConfig, ATablesLossIsTheSquareUnlessGiven) {
    EXPECT_EQ(read("{}").config.loss, TrainLoss::cross_entropy);
    EXPECT_EQ(read(R"({"model":"linear","dataset":{"name":"table","path":"t"}})").config.loss,
              TrainLoss::mse);
}

TEST(TrainConfig, MobileNetsDropoutIsTorchvisionsUnlessGiven) {
    EXPECT_EQ(read(R"({"model":"mobilenet_v2"})").config.dropout, 0.2);
    EXPECT_EQ(read(R"({"model":"mobilenet_v2","dropout":0.1})").config.dropout, 0.1);
    EXPECT_EQ(read("{}").config.dropout, 0.5);
}

TEST(TrainConfig, TheStrategySaysWhichNumbersOfRanksItTakes) {
    const auto wrong = [](const char* text, std::int32_t ranks) {
        return check_train_ranks(read(text).config, ranks);
    };
    EXPECT_EQ(wrong("{}", 7), "");
    EXPECT_EQ(wrong(R"({"strategy":"single"})", 2),
              "single is one process: ask for 1 node × 1 rank, or use data_parallel");
    EXPECT_NE(wrong(R"({"strategy":"replicated"})", 2), "");
    EXPECT_EQ(wrong(R"({"strategy":"parameter_server"})", 1),
              "parameter_server needs a server and a worker: 2 ranks");
    const char* pipeline = R"({"strategy":"pipeline","model":"mlp","stages":2})";
    EXPECT_EQ(wrong(pipeline, 4), "");
    EXPECT_EQ(wrong(pipeline, 3), "pipeline: 3 ranks do not make whole chains of 2 stages");
    EXPECT_EQ(wrong(R"({"strategy":"pipeline","model":"mlp"})", 5),
              "pipeline: 5 stages, but model mlp has 4 layers");
}

}  // namespace
}  // namespace lockstep
