// Every strategy against one device: the same samples must give the same loss curve.
#include "job/base/files.hpp"
#include "job/model/spec/train_choices.hpp"
#include "job/trainer/all_reduce.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategies/server_messages.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

// 50 steps of 64 samples over all ranks. Layers that look at a whole batch are off: then splitting
// it must not matter.
TrainConfig fifty_steps(TrainModel model) {
    TrainConfig config;
    config.model = model;
    config.norm_mode = NormMode::eval;
    config.dropout = 0.0;
    config.epochs = 5;
    config.batch_size = 64;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    config.weight_decay = 0.01;
    config.gradient_clip = 2.0;  // above some norms, below others
    config.schedule = TrainSchedule::cosine;
    config.warmup_steps = 5;
    return config;
}

const Trained& one_device(TrainModel model) {
    static const Trained mlp = train_in_world(fifty_steps(TrainModel::mlp), few_digits(), {});
    static const Trained convnet =
        train_in_world(fifty_steps(TrainModel::mnist_convnet), few_digits(), {});
    return model == TrainModel::mlp ? mlp : convnet;
}

struct Way {
    const char* name;
    TrainModel model;
    TrainStrategy strategy;
    std::int32_t ranks;
    std::int32_t shards;  // into which a step's samples are split
    void (*set)(TrainConfig&, TrainingOptions&);

    friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

class StrategyAgainstOneDevice : public testing::TestWithParam<Way> {};

TEST_P(StrategyAgainstOneDevice, FiftyStepsHaveTheSameLosses) {
    const Way& way = GetParam();
    TrainConfig config = fifty_steps(way.model);
    config.strategy = way.strategy;
    config.batch_size /= way.shards;
    TrainingOptions options;
    options.ranks = way.ranks;
    way.set(config, options);
    const Trained& one = one_device(way.model);
    const Trained many = train_in_world(config, few_digits(), options);
    for (const Result<RunEnd>& end : many.ends) {
        ASSERT_TRUE(end.has_value()) << end.error().text();
    }
    ASSERT_EQ(one.losses().size(), 50U);
    expect_same(many.mean_losses(), one.losses(), 1e-4);
    EXPECT_LT(one.losses().back(), one.losses().front() - 0.02);
    for (std::size_t rank = 0; rank < many.steps.size(); ++rank) {
        if (!many.steps[rank].empty()) {
            EXPECT_NEAR(many.steps[rank][9].gradient_norm, one.steps[0][9].gradient_norm, 1e-3);
            EXPECT_NEAR(many.ends[rank]->accuracy, one.ends[0]->accuracy, 0.011);
        }
    }
}

const auto kAsItIs = [](TrainConfig&, TrainingOptions&) {};
constexpr auto kMlp = TrainModel::mlp;
constexpr auto kConvnet = TrainModel::mnist_convnet;

INSTANTIATE_TEST_SUITE_P(
    Strategies, StrategyAgainstOneDevice,
    testing::Values(Way{"data_parallel", kMlp, TrainStrategy::data_parallel, 4, 4, kAsItIs},
                    Way{"reduce_to_one", kMlp, TrainStrategy::data_parallel, 2, 2,
                        [](TrainConfig& config, TrainingOptions& options) {
                            options.ranks = 2;
                            config.batch_size = 32;
                            config.all_reduce = TrainAllReduce::reduce_to_one;
                        }},
                    Way{"hierarchical", kMlp, TrainStrategy::data_parallel, 4, 4,
                        [](TrainConfig& config, TrainingOptions& options) {
                            options.ranks_per_node = 2;
                            config.all_reduce = TrainAllReduce::hierarchical;
                        }},
                    Way{"replicated", kConvnet, TrainStrategy::replicated, 1, 1,
                        [](TrainConfig& config, TrainingOptions&) { config.replicas = 2; }},
                    Way{"central_storage", kMlp, TrainStrategy::central_storage, 1, 1,
                        [](TrainConfig& config, TrainingOptions&) { config.replicas = 3; }},
                    Way{"parameter_server", kMlp, TrainStrategy::parameter_server, 3, 2,
                        [](TrainConfig&, TrainingOptions& options) { options.servers = 1; }},
                    Way{"pipeline", kConvnet, TrainStrategy::pipeline, 3, 1, kAsItIs},
                    Way{"pipeline_of_four", kMlp, TrainStrategy::pipeline, 4, 1,
                        [](TrainConfig& config, TrainingOptions&) { config.micro_batches = 8; }},
                    Way{"pipelines_in_parallel", kMlp, TrainStrategy::pipeline, 4, 2,
                        [](TrainConfig& config, TrainingOptions&) {
                            config.stages = 2;
                            config.batch_size = 16;
                            config.accumulate = 2;
                        }}),
    [](const auto& each) { return std::string{each.param.name}; });

// Several servers, each with a part of the parameters; nobody clips, who would need the whole norm.
TEST(ParameterServer, SeveralServersAreAsOne) {
    TrainConfig config = fifty_steps(TrainModel::mlp);
    config.gradient_clip = 0.0;
    config.epochs = 1;
    const Trained one = train_in_world(config, few_digits(), {});
    config.strategy = TrainStrategy::parameter_server;
    config.batch_size = 32;
    TrainingOptions options;
    options.ranks = 5;
    options.servers = 3;
    const Trained many = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(many.ends[4].has_value()) << many.ends[4].error().text();
    expect_same(many.mean_losses(), one.losses(), 1e-4);
    EXPECT_TRUE(many.ends[0]->served);
    EXPECT_EQ(many.steps[3][5].staleness, 0);
    config.gradient_clip = 1.0;
    const Trained clipped = train_in_world(config, few_digits(), options);
    ASSERT_FALSE(clipped.ends[0].has_value());
    EXPECT_NE(clipped.ends[0].error().message.find("gradient_clip needs one server"),
              std::string::npos);
}

TEST(ParameterServer, AsyncConvergesAndTellsHowStaleGradientsWere) {
    TrainConfig config = fifty_steps(TrainModel::mlp);
    config.strategy = TrainStrategy::parameter_server;
    config.update = TrainUpdate::async;
    config.schedule = TrainSchedule::constant;
    config.batch_size = 16;
    TrainingOptions options;
    options.ranks = 3;
    options.servers = 1;
    const Trained two = train_in_world(config, few_digits(), options);
    std::int64_t stale = 0;
    for (const std::size_t worker : {1U, 2U}) {
        ASSERT_TRUE(two.ends[worker].has_value()) << two.ends[worker].error().text();
        const std::vector<double> losses = two.losses(worker);
        ASSERT_EQ(losses.size(), 100U);
        EXPECT_LT(losses.back(), losses.front() - 0.5);
        for (const StepResult& step : two.steps[worker]) {
            EXPECT_GE(step.staleness, 0);
            stale += step.staleness;
        }
    }
    // Every update of the other one between two of a worker's own is counted: of 200 as many as the
    // two were at it together.
    EXPECT_GT(stale, 0);
    EXPECT_LE(stale, 200);
}

TEST(ParameterServer, PartsAreWholeParametersAndCoverAll) {
    const FlatLayout layout = flat_layout({{"a", {100}}, {"b", {40, 2}}, {"c", {7}}});
    for (const std::size_t servers : {1U, 2U, 3U, 5U}) {
        const std::vector<ServerPart> parts = server_parts(layout, servers);
        ASSERT_EQ(parts.size(), servers);
        std::size_t end = 0;
        std::size_t count = 0;
        for (const ServerPart& part : parts) {
            EXPECT_EQ(part.begin, end);
            end = part.end;
            for (const FlatRange& layer : part.layers) {
                EXPECT_LE(part.begin + layer.offset + layer.count, part.end);
                count += layer.count;
            }
        }
        EXPECT_EQ(end, layout.floats);
        EXPECT_EQ(count, 187U);
    }
}

TEST(ParameterServer, WithoutAServerOrAWorkerItIsRefused) {
    TrainConfig config = fifty_steps(TrainModel::mlp);
    config.strategy = TrainStrategy::parameter_server;
    TrainingOptions options;
    options.ranks = 2;
    for (const std::int32_t servers : {0, 2}) {
        options.servers = servers;
        const Trained two = train_in_world(config, few_digits(), options);
        for (const Result<RunEnd>& end : two.ends) {
            ASSERT_FALSE(end.has_value());
            EXPECT_EQ(end.error().code, Errc::invalid);
            EXPECT_NE(end.error().message.find("must have a ps and a worker"), std::string::npos);
        }
    }
}

class StrategyResumes : public testing::TestWithParam<Way> {};

TEST_P(StrategyResumes, AsIfNothingHadHappened) {
    const Way& way = GetParam();
    TrainConfig config = fifty_steps(way.model);
    config.strategy = way.strategy;
    config.schedule = TrainSchedule::constant;  // the length of the run differs here
    config.epochs = 1;
    config.batch_size /= way.shards;
    TrainingOptions options;
    options.ranks = way.ranks;
    way.set(config, options);
    const Trained straight = train_in_world(config, few_digits(), options);
    const TemporaryFolder folder;
    options.checkpoints = folder.path();
    config.max_steps = 4;
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends.back().has_value());
    config.max_steps = 0;
    const Trained second = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(second.ends.back().has_value()) << second.ends.back().error().text();
    EXPECT_EQ(second.ends.back()->resumed_from, 4);
    const std::vector<double> all = straight.mean_losses();
    expect_same(second.mean_losses(), {all.begin() + 4, all.end()}, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, StrategyResumes,
    testing::Values(Way{"central_storage", kMlp, TrainStrategy::central_storage, 1, 1,
                        [](TrainConfig& config, TrainingOptions&) { config.replicas = 2; }},
                    Way{"parameter_server", kMlp, TrainStrategy::parameter_server, 4, 2,
                        [](TrainConfig& config, TrainingOptions& options) {
                            options.servers = 2;
                            config.gradient_clip = 0.0;
                        }},
                    Way{"pipeline", kConvnet, TrainStrategy::pipeline, 4, 2,
                        [](TrainConfig& config, TrainingOptions&) {
                            config.stages = 2;
                            config.norm_mode = NormMode::train;  // its averages are kept, too
                        }}),
    [](const auto& each) { return std::string{each.param.name}; });

TEST(Pipeline, MoreStagesThanLayersAreRefused) {
    TrainConfig config = fifty_steps(TrainModel::mlp);
    config.strategy = TrainStrategy::pipeline;
    TrainingOptions options;
    options.ranks = 5;
    const Trained five = train_in_world(config, few_digits(), options);
    for (const Result<RunEnd>& end : five.ends) {
        ASSERT_FALSE(end.has_value());
        EXPECT_NE(end.error().message.find("5 stages, but model mlp has 4 layers"),
                  std::string::npos)
            << end.error().message;
    }
}

// What the specification says about a model's layers is what the model has.
TEST(Pipeline, TheTableOfModelsKnowsTheirLayers) {
    for (std::size_t i = 0; i < train_models().size(); ++i) {
        const TrainChoice& row = train_models()[i];
        if (row.built) {
            TrainConfig config;
            config.model = static_cast<TrainModel>(i);
            ModelShape shape = shape_of(few_digits());
            if (config.model == TrainModel::gpt || config.model == TrainModel::seq2seq) {
                shape = {ColumnType::index, {17}, 256};
            }
            EXPECT_EQ(static_cast<std::size_t>(row.layers), model_layers(config, shape).size())
                << row.word;
        }
    }
}

TEST(Strategies, AStopOfOneRankOfAPipelineStopsAllWithACheckpoint) {
    const TemporaryFolder folder;
    TrainConfig config = fifty_steps(TrainModel::mlp);
    config.strategy = TrainStrategy::pipeline;
    TrainingOptions options;
    options.ranks = 2;
    options.checkpoints = folder.path();
    options.on_step = [](std::int32_t rank, const StepResult& step) {
        if (rank == 1 && step.step == 5) {
            stop_signal::request();
        }
    };
    stop_signal::reset();
    const Trained two = train_in_world(config, few_digits(), options);
    stop_signal::reset();
    for (const Result<RunEnd>& end : two.ends) {
        ASSERT_TRUE(end.has_value()) << end.error().text();
        EXPECT_TRUE(end->stopped);
        EXPECT_EQ(end->step, two.ends[0]->step);
    }
    const auto found = latest_checkpoint(folder.path());
    ASSERT_TRUE(found.has_value() && found->has_value());
    EXPECT_EQ((*found)->checkpoint.step, two.ends[0]->step);
}

TEST(Precision, Bfloat16LearnsAsFp32WithinItsRounding) {
    TrainConfig config = fifty_steps(TrainModel::mnist_convnet);
    config.max_steps = 10;
    const Trained full = train_in_world(config, few_digits(), {});
    config.precision = TrainPrecision::bf16;
    const Trained half = train_in_world(config, few_digits(), {});
    ASSERT_TRUE(half.ends[0].has_value()) << half.ends[0].error().text();
    expect_same(half.losses(), full.losses(), 0.05);
    EXPECT_NE(half.losses(), full.losses());
    const auto is_zero = [](float value) { return value == 0.0F; };
    EXPECT_FALSE(std::all_of(half.weights[0].begin(), half.weights[0].end(), is_zero));
}

// Text through a pipeline of transformer blocks, against one device; and it learns.
TEST(Pipeline, ATransformerReadsTextAsOnOneDevice) {
    const TemporaryFolder folder;
    std::string text;
    while (text.size() < 4'000) {
        text += "the ranks keep step, the ranks keep time; ";
    }
    ASSERT_TRUE(write_file_atomic(folder.path() / "text", text).has_value());
    TrainConfig config = fifty_steps(TrainModel::gpt);
    config.dataset = TrainDataset::text;
    config.dataset_path = (folder.path() / "text").string();
    config.context = 16;
    config.batch_size = 16;
    config.max_steps = 20;
    config.learning_rate = 0.003;
    const Result<Dataset> data = load_dataset(config, {});
    ASSERT_TRUE(data.has_value()) << data.error().text();
    const Trained one = train_in_world(config, *data, {});
    ASSERT_TRUE(one.ends[0].has_value()) << one.ends[0].error().text();
    EXPECT_LT(one.losses().back(), one.losses().front() - 1.0);
    config.strategy = TrainStrategy::pipeline;
    TrainingOptions options;
    options.ranks = 3;
    const Trained three = train_in_world(config, *data, options);
    ASSERT_TRUE(three.ends[0].has_value()) << three.ends[0].error().text();
    expect_same(three.mean_losses(), one.losses(), 1e-3);
}

// Of three ranks the last one is as `set` makes it.
void expect_last_refused(void (*set)(TrainConfig&, RunOptions&)) {
    std::vector<Status> results(3);
    as_worlds(3, 0, [&](World& world) {
        TrainConfig config = fifty_steps(TrainModel::mlp);
        RunOptions options;
        if (world.rank() == 2) {
            set(config, options);
        }
        TrainingRun run{config, few_digits(), world, options};
        results[static_cast<std::size_t>(world.rank())] = run.prepare();
    });
    for (const Status& result : results) {
        ASSERT_FALSE(result.has_value());
        EXPECT_EQ(result.error().code, Errc::conflict);
        EXPECT_NE(result.error().message.find("2 differ from rank 0"), std::string::npos);
    }
}

TEST(Strategies, RanksWithDifferentConfigurationsAreRefusedByNumber) {
    expect_last_refused([](TrainConfig& config, RunOptions&) { config.seed = 1; });
}

// The others of a pipeline waited for its part of every checkpoint.
TEST(Strategies, RanksOfWhichOneKeepsCheckpointsAreRefusedByNumber) {
    expect_last_refused(
        [](TrainConfig&, RunOptions& options) { options.checkpoint_directory = "checkpoints"; });
}

}  // namespace
}  // namespace lockstep
