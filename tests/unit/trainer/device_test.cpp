// Training as on a GPU, of LibTorch's operations, on the CPU beside the CPU's own way: the same
// losses, weights and checkpoints. And which device a rank takes.
#include "job/trainer/device.hpp"

#include "job/base/files.hpp"
#include "job/trainer/cuda_device.hpp"
#include "job/trainer/device_optimizer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainer/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

struct DeviceWay {
    const char* name;
    std::int32_t ranks;
    double tolerance;
    void (*set)(TrainConfig&);

    friend void PrintTo(const DeviceWay& way, std::ostream* out) { *out << way.name; }
};

class TrainingAsOnAGpu : public testing::TestWithParam<DeviceWay> {};

TrainConfig few_steps() {
    TrainConfig config;
    config.model = TrainModel::mlp;
    config.epochs = 2;
    config.max_steps = 12;
    config.batch_size = 64;
    config.loader_workers = 0;
    config.checkpoint_every_steps = 0;
    return config;
}

// A text long enough for both.
std::string text_of(bool pairs) {
    std::string out;
    for (int i = 0; i < 300; ++i) {
        const std::string word = std::to_string(i * 7919 % 1000);
        out += pairs ? word + "\t" + std::string{word.rbegin(), word.rend()} + "\n" : word + " ";
    }
    return out;
}

// The configuration of a way, and what it reads.
struct Prepared {
    explicit Prepared(const DeviceWay& way) : config(few_steps()) {
        way.set(config);
        config.batch_size /= way.ranks;
        if (config.dataset == TrainDataset::digits) {
            return;
        }
        const auto path = folder.path() / "text";
        EXPECT_TRUE(write_file_atomic(path, text_of(config.dataset == TrainDataset::pairs)));
        config.dataset_path = path.string();
        config.context = 6;
        Result<Dataset> loaded = load_dataset(config, {});
        EXPECT_TRUE(loaded.has_value()) << loaded.error().text();
        text = std::move(*loaded);
    }
    const Dataset& data() const { return text ? *text : few_digits(); }

    TemporaryFolder folder;
    TrainConfig config;
    std::optional<Dataset> text;
};

void expect_alike(const Trained& other, const Trained& own, double tolerance) {
    ASSERT_TRUE(own.ends[0].has_value()) << own.ends[0].error().text();
    ASSERT_TRUE(other.ends[0].has_value()) << other.ends[0].error().text();
    expect_same(other.mean_losses(), own.mean_losses(), tolerance);
    const std::size_t middle = own.steps[0].size() / 2;
    EXPECT_NEAR(other.steps[0][middle].gradient_norm / own.steps[0][middle].gradient_norm, 1.0,
                std::max(10 * tolerance, 0.01));
    EXPECT_NEAR(other.ends[0]->test_loss, own.ends[0]->test_loss, std::max(tolerance, 0.02));
}

TEST_P(TrainingAsOnAGpu, HasTheLossesOfTheCpusOwnWay) {
    const DeviceWay& way = GetParam();
    const Prepared prepared{way};
    TrainingOptions options;
    options.ranks = way.ranks;
    const Trained own = train_in_world(prepared.config, prepared.data(), options);
    const PortableTraining portably;
    const Trained other = train_in_world(prepared.config, prepared.data(), options);
    expect_alike(other, own, way.tolerance);
    for (std::size_t rank = 1; rank < other.weights.size(); ++rank) {
        EXPECT_EQ(other.weights[rank], other.weights[0]);
    }
}

// On a real one, without TF32, which PyTorch and we have in convolutions by themselves. Some of the
// steps are a graph's. One rank has the batch of all: several on GPUs are several processes
// (gpu.native_gpu).
TEST_P(TrainingAsOnAGpu, OnARealGpuItHasThemToo) {
    if (cuda_device::visible() == 0) {
        GTEST_SKIP() << "needs a GPU: " << cuda_device::none_because();
    }
    DeviceWay way = GetParam();
    way.ranks = 1;
    Prepared prepared{way};
    prepared.config.dropout = 0.0;  // other random numbers
    at::globalContext().setAllowTF32CuDNN(false);
    const Trained own = train_in_world(prepared.config, prepared.data(), {});
    TrainingOptions options;
    options.gpus = {0};
    const Trained gpu = train_in_world(prepared.config, prepared.data(), options);
    at::globalContext().setAllowTF32CuDNN(true);
    expect_alike(gpu, own, std::max(20 * way.tolerance, 0.01));
    prepared.config.precision = TrainPrecision::bf16;
    const Trained bf16 = train_in_world(prepared.config, prepared.data(), options);
    ASSERT_TRUE(bf16.ends[0].has_value()) << bf16.ends[0].error().text();
    for (std::size_t step = 0; step < own.steps[0].size(); ++step) {
        EXPECT_NEAR(bf16.losses()[step], own.losses()[step], 0.4) << step;
    }
    prepared.config.precision = TrainPrecision::fp16;
    const Trained fp16 = train_in_world(prepared.config, prepared.data(), options);
    ASSERT_TRUE(fp16.ends[0].has_value()) << fp16.ends[0].error().text();
    std::size_t made = 0;
    for (const StepResult& step : fp16.steps[0]) {
        made += step.skipped ? 0 : 1;
    }
    EXPECT_GE(made, 1U);  // where gradients are large the scale is halved a few times first
    EXPECT_NEAR(fp16.losses()[0], own.losses()[0], 0.05);
}

TEST(DeviceWay, DropoutOnARealGpuFollowsFromTheStepAlone) {
    if (cuda_device::visible() == 0) {
        GTEST_SKIP() << "needs a GPU: " << cuda_device::none_because();
    }
    const TemporaryFolder folder;
    TrainConfig config = few_steps();
    TrainingOptions options;
    options.gpus = {0};
    const Trained straight = train_in_world(config, few_digits(), options);
    options.checkpoints = folder.path();
    config.max_steps = 7;
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
    config.max_steps = 12;
    const Trained rest = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(rest.ends[0].has_value()) << rest.ends[0].error().text();
    const std::vector<double> all = straight.losses();
    expect_same(rest.losses(), {all.begin() + 7, all.end()}, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, TrainingAsOnAGpu,
    testing::Values(
        DeviceWay{"mlp_adam", 1, 1e-4, [](TrainConfig&) {}},
        DeviceWay{"two_ranks_clipped", 2, 1e-4,
                  [](TrainConfig& config) {
                      config.gradient_clip = 1.0;
                      config.weight_decay = 0.01;
                  }},
        DeviceWay{"two_ranks_to_one", 2, 1e-4,
                  [](TrainConfig& config) { config.all_reduce = TrainAllReduce::reduce_to_one; }},
        DeviceWay{"adamw_accumulated", 1, 1e-4,
                  [](TrainConfig& config) {
                      config.optimizer = TrainOptimizer::adamw;
                      config.weight_decay = 0.05;
                      config.batch_size = 16;
                      config.accumulate = 3;
                  }},
        DeviceWay{"sgd", 1, 1e-4,
                  [](TrainConfig& config) {
                      config.optimizer = TrainOptimizer::sgd;
                      config.learning_rate = 0.05;
                      config.weight_decay = 0.01;
                  }},
        DeviceWay{"lamb", 1, 1e-4,
                  [](TrainConfig& config) {
                      config.optimizer = TrainOptimizer::lamb;
                      config.learning_rate = 0.01;
                      config.weight_decay = 0.01;
                  }},
        DeviceWay{"convnet", 1, 2e-3,
                  [](TrainConfig& config) { config.model = TrainModel::mnist_convnet; }},
        DeviceWay{"convnet_moving_moments", 2, 2e-3,
                  [](TrainConfig& config) {
                      config.model = TrainModel::mnist_convnet;
                      config.norm_mode = NormMode::eval;
                  }},
        DeviceWay{"alexnet", 1, 2e-3,
                  [](TrainConfig& config) {
                      config.model = TrainModel::alexnet_split;
                      config.batch_size = 16;
                      config.max_steps = 6;
                  }},
        DeviceWay{"mobilenet", 1, 2e-3,
                  [](TrainConfig& config) {
                      config.model = TrainModel::mobilenet_v2;
                      config.optimizer =
                          TrainOptimizer::sgd;  // untrained, Adam's steps differ soon
                      config.learning_rate = 1e-5;
                      config.batch_size = 16;
                      config.max_steps = 3;
                  }},
        DeviceWay{"gpt", 2, 1e-3,
                  [](TrainConfig& config) {
                      config.model = TrainModel::gpt;
                      config.dataset = TrainDataset::text;
                  }},
        DeviceWay{"seq2seq", 1, 1e-3,
                  [](TrainConfig& config) {
                      config.model = TrainModel::seq2seq;
                      config.dataset = TrainDataset::pairs;
                  }}),
    [](const auto& each) { return std::string{each.param.name}; });

// A run that began on the one goes on on the other.
TEST(DeviceWay, GoesOnFromACheckpointOfTheCpu) {
    const TemporaryFolder folder;
    TrainConfig config = few_steps();
    const Trained straight = train_in_world(config, few_digits(), {});
    TrainingOptions options;
    options.checkpoints = folder.path();
    config.max_steps = 4;
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
    const PortableTraining portably;
    config.max_steps = 8;
    ASSERT_TRUE(train_in_world(config, few_digits(), options).ends[0].has_value());
    config.max_steps = 12;
    const Trained last = train_in_world(config, few_digits(), options);
    ASSERT_TRUE(last.ends[0].has_value()) << last.ends[0].error().text();
    EXPECT_EQ(last.ends[0]->resumed_from, 8);
    const std::vector<double> all = straight.losses();
    expect_same(last.losses(), {all.begin() + 8, all.end()}, 1e-4);
}

TEST(DeviceOptimizer, KeepsItsStateWhereTheCpusIs) {
    for (const TrainOptimizer kind :
         {TrainOptimizer::adam, TrainOptimizer::adamw, TrainOptimizer::sgd, TrainOptimizer::lamb}) {
        constexpr std::size_t kCount = 32;
        const std::vector<FlatRange> layers{{0, 16}, {16, 16}};
        const OptimizerOptions options{kind, 0.9, 0.1};
        Optimizer own{options, kCount, layers};
        std::vector<float> values(kCount);
        std::vector<float> slopes(kCount);
        at::Tensor parameters = at::zeros({kCount});
        for (std::size_t i = 0; i < kCount; ++i) {
            values[i] = 0.1F * static_cast<float>(i) - 1.0F;
            parameters.data_ptr<float>()[i] = values[i];
        }
        DeviceOptimizer device{options, parameters, layers};
        for (int step = 0; step < 5; ++step) {
            at::Tensor gradients = at::zeros({kCount});
            for (std::size_t i = 0; i < kCount; ++i) {
                slopes[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(step)) % 5) - 2.0F;
                gradients.data_ptr<float>()[i] = slopes[i];
            }
            own.step(values, slopes, 0.5F, 0.01);
            device.step(parameters, gradients, 0.5, 0.01);
        }
        for (std::size_t i = 0; i < kCount; ++i) {
            EXPECT_NEAR(parameters.data_ptr<float>()[i], values[i], 1e-5) << i;
        }
        ASSERT_EQ(static_cast<std::size_t>(device.state().numel()), own.state().size());
        for (std::size_t i = 0; i < own.state().size(); ++i) {
            EXPECT_NEAR(device.state().data_ptr<float>()[i], own.state()[i], 1e-5) << i;
        }
    }
}

Environment variables(std::map<std::string, std::string> values) {
    return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found == values.end() ? std::nullopt : std::optional{found->second};
    };
}

TEST(ChooseDevice, WithoutGpusItIsTheCpuAndNothingIsSaid) {
    RankContext context;
    context.socket = "/run/agent";
    for (const char* none : {"", "-1", "NoDevFiles"}) {
        const Result<ChosenDevice> chosen =
            choose_device({}, context, variables({{"CUDA_VISIBLE_DEVICES", none}}));
        ASSERT_TRUE(chosen.has_value());
        EXPECT_TRUE(chosen->gpus.empty());
        EXPECT_EQ(chosen->why_cpu, "");
    }
    EXPECT_TRUE(choose_device({}, context, variables({}))->gpus.empty());
}

TEST(ChooseDevice, GpusThatAreNotUsedAreToldWithTheReason) {
    TrainConfig config;
    config.strategy = TrainStrategy::pipeline;
    const Environment given = variables({{"CUDA_VISIBLE_DEVICES", "0,1"}});
    if (!cuda_device::built()) {
        const Result<ChosenDevice> chosen = choose_device(config, {}, given);
        ASSERT_TRUE(chosen.has_value());
        EXPECT_NE(chosen->why_cpu.find("LibTorch without CUDA"), std::string::npos);
    }
    config.devices = TrainDevices::cpu;
    EXPECT_EQ(choose_device(config, {}, given)->why_cpu, "");
    // A parameter server computes nothing, so it is not refused what only its workers need.
    config.strategy = TrainStrategy::parameter_server;
    config.devices = TrainDevices::gpu;
    config.precision = TrainPrecision::fp16;
    RankContext server;
    server.role = "ps";
    const Result<ChosenDevice> serving = choose_device(config, server, given);
    ASSERT_TRUE(serving.has_value()) << serving.error().message;
    EXPECT_EQ(serving->why_cpu, "");
    if (!cuda_device::built()) {
        EXPECT_FALSE(choose_device(config, {}, given).has_value());
    }
}

TEST(ChooseDevice, AGpuThatIsDemandedAndCannotBeHadIsRefused) {
    if (cuda_device::visible() > 0) {
        GTEST_SKIP() << "this machine has a GPU";
    }
    TrainConfig config;
    config.devices = TrainDevices::gpu;
    const Environment given = variables({{"CUDA_VISIBLE_DEVICES", "0"}});
    const Result<ChosenDevice> gpu = choose_device(config, {}, given);
    ASSERT_FALSE(gpu.has_value());
    EXPECT_EQ(gpu.error().code, Errc::invalid);
    EXPECT_NE(
        gpu.error().message.find(cuda_device::built() ? "no GPU can be used" : "without CUDA"),
        std::string::npos)
        << gpu.error().message;
    config.devices = TrainDevices::automatic;
    config.precision = TrainPrecision::fp16;
    const Result<ChosenDevice> half = choose_device(config, {}, variables({}));
    ASSERT_FALSE(half.has_value());
    EXPECT_EQ(half.error().message,
              "precision fp16 needs a GPU, and this rank was given none; on the CPU use bf16");
}

// It read "found version 12020", and to update the driver from a web page.
TEST(ChooseDevice, ADriverThatIsTooOldIsSaidInOurWords) {
    const std::string torch =
        "The NVIDIA driver on your system is too old (found version 12020). Please update your "
        "GPU driver by downloading and installing a new version from the URL: "
        "http://www.nvidia.com/Download/index.aspx Alternatively, go to: https://pytorch.org to "
        "install a PyTorch version that has been compiled with your version of the CUDA driver.";
    const std::string why = why_no_gpu(torch);
    EXPECT_NE(why.find("driver of this node is too old: it knows CUDA 12.2"), std::string::npos)
        << why;
    EXPECT_EQ(why.find("http"), std::string::npos) << why;
    EXPECT_EQ(why_no_gpu("No CUDA GPUs are available"), "No CUDA GPUs are available");
    EXPECT_EQ(why_no_gpu("driver on your system is too old (found version x)"),
              "driver on your system is too old (found version x)");
}

TEST(ChooseDevice, ASecondSliceIsNotSeen) {
    const std::string why = why_not_that_gpu(1, 1, "MIG-1,MIG-2");
    EXPECT_NE(why.find("no GPU 1: this process sees 1 (of MIG-1,MIG-2: CUDA shows a process one"),
              std::string::npos)
        << why;
    EXPECT_NE(why_not_that_gpu(4, 2, "0,1").find("takes that of LOCAL_RANK"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
