#include "job/model/train_config.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace lockstep {
namespace {

using Words = std::span<const std::string_view>;

// The words this version implements come first, in the order of the enumerators.
constexpr std::array<std::string_view, 5> kModels{"mnist_convnet", "mlp", "alexnet_split",
                                                  "mobilenet_v2", "seq2seq"};
constexpr std::array<std::string_view, 3> kDatasets{"digits", "mnist", "cifar10"};
constexpr std::array<std::string_view, 6> kStrategies{
    "single", "data_parallel", "replicated", "central_storage", "parameter_server", "pipeline"};
constexpr std::array<std::string_view, 2> kOptimizers{"adam", "sgd"};
constexpr std::array<std::string_view, 2> kNormModes{"train", "eval"};
constexpr std::array<std::string_view, 3> kPrecisions{"fp32", "fp16", "bf16"};
constexpr std::array<std::string_view, 3> kAllReduces{"ring", "hierarchical", "reduce_to_one"};

constexpr std::int64_t kEpochsMax = 1'000'000;
constexpr std::int64_t kStepsMax = 1'000'000'000'000;
constexpr std::int64_t kBatchMax = 65'536;       // 65,536 × 28 × 28 floats are 200 MB
constexpr std::int64_t kAccumulateMax = 65'536;  // bounded only against a slip of the keyboard
constexpr std::int64_t kWorkersMax = 16;         // a batch takes 20 µs to prepare; more only wait
constexpr std::int64_t kSamplesMax = 1'000'000;  // 784 MB on disk and in memory
constexpr double kRateMin = 1e-12;
constexpr double kRateMax = 1e6;

std::string not_available(std::string_view word) {
    return "\"" + std::string{word} + "\" is not available yet";
}

// Reads one of the first `available` of `words`. The others are refused by name, and no message
// offers them.
std::size_t read_word(ObjectReader& in, std::string_view key, Words words, std::size_t available,
                      std::size_t now) {
    const Words later = words.subspan(available);
    if (const Json* value = in.raw(key); value != nullptr && value->is_string()) {
        const auto& text = value->get_ref<const std::string&>();
        if (std::find(later.begin(), later.end(), text) != later.end()) {
            in.error(key, not_available(text));
            return now;
        }
    }
    std::size_t index = now;
    in.word(key, index, {words.begin(), words.begin() + static_cast<std::ptrdiff_t>(available)});
    return index;
}

template <class Enum, std::size_t kSize>
void read_enum(ObjectReader& in, std::string_view key,
               const std::array<std::string_view, kSize>& words, std::size_t available,
               Enum& target) {
    target =
        static_cast<Enum>(read_word(in, key, words, available, static_cast<std::size_t>(target)));
}

void refuse_without_effect(ObjectReader& in, std::string_view key, bool has_effect,
                           std::string_view why) {
    if (in.has(key) && !has_effect) {
        in.error(key, "has no effect with " + std::string{why});
    }
}

void read_dataset(ObjectReader& in, TrainConfig& config, std::vector<FieldError>& errors) {
    const Json* object = in.raw("dataset");
    if (object != nullptr) {
        ObjectReader data{*object, in.pointer("dataset"), errors};
        read_enum(data, "name", kDatasets, 2, config.dataset);
        data.string("path", config.dataset_path, limits::kPathBytes);
        data.finish();
    }
    if (config.dataset == TrainDataset::mnist && config.dataset_path.empty()) {
        errors.push_back({in.pointer("dataset") + "/path",
                          "mnist needs the folder that holds its four IDX files"});
    }
    in.integer("train_samples", config.train_samples, 1, kSamplesMax);
    in.integer("test_samples", config.test_samples, 1, kSamplesMax);
    const bool generated = config.dataset == TrainDataset::digits;
    refuse_without_effect(in, "train_samples", generated, "dataset mnist");
    refuse_without_effect(in, "test_samples", generated, "dataset mnist");
}

void read_devices(ObjectReader& in) {
    std::string devices = "auto";
    in.string("devices", devices, limits::kTextBytes);
    if (devices == "auto" || devices == "cpu") {
        return;
    }
    if (devices == "gpu" || devices.starts_with("gpu:")) {
        in.error("devices", not_available(devices));
    } else {
        in.error("devices", "must be one of: auto, cpu");
    }
}

// Fields of a training run that only some choices give a meaning to.
void check_effects(ObjectReader& in, const TrainConfig& config) {
    const bool parallel = config.strategy == TrainStrategy::data_parallel;
    refuse_without_effect(in, "momentum", config.optimizer == TrainOptimizer::sgd,
                          "optimizer adam");
    refuse_without_effect(in, "norm_mode", config.model == TrainModel::mnist_convnet,
                          "model mlp, which has no normalisation layer");
    refuse_without_effect(in, "all_reduce", parallel, "strategy single");
}

}  // namespace

std::string_view to_string(TrainModel value) {
    return kModels[static_cast<std::size_t>(value)];
}
std::string_view to_string(TrainDataset value) {
    return kDatasets[static_cast<std::size_t>(value)];
}
std::string_view to_string(TrainStrategy value) {
    return kStrategies[static_cast<std::size_t>(value)];
}
std::string_view to_string(TrainOptimizer value) {
    return kOptimizers[static_cast<std::size_t>(value)];
}
std::string_view to_string(NormMode value) {
    return kNormModes[static_cast<std::size_t>(value)];
}

void read_train_config(const Json& object, const std::string& pointer, TrainConfig& config,
                       std::vector<FieldError>& errors) {
    ObjectReader in{object, pointer, errors};
    read_enum(in, "model", kModels, 2, config.model);
    read_dataset(in, config, errors);
    read_enum(in, "strategy", kStrategies, 2, config.strategy);
    read_word(in, "all_reduce", kAllReduces, 1, 0);
    read_devices(in);
    in.integer("epochs", config.epochs, 1, kEpochsMax);
    in.integer("max_steps", config.max_steps, 0, kStepsMax);
    in.integer("batch_size", config.batch_size, 1, kBatchMax);
    in.number("learning_rate", config.learning_rate, kRateMin, kRateMax);
    in.boolean("scale_learning_rate", config.scale_learning_rate);
    read_enum(in, "optimizer", kOptimizers, kOptimizers.size(), config.optimizer);
    in.number("momentum", config.momentum, 0.0, 1.0);
    in.integer("seed", config.seed, 0, INT64_MAX);
    read_word(in, "precision", kPrecisions, 1, 0);
    in.integer("accumulate", config.accumulate, 1, kAccumulateMax);
    in.number("dropout", config.dropout, 0.0, 0.95);
    read_enum(in, "norm_mode", kNormModes, kNormModes.size(), config.norm_mode);
    in.integer("loader_workers", config.loader_workers, 0, kWorkersMax);
    in.boolean("shuffle", config.shuffle);
    in.integer("checkpoint_every_steps", config.checkpoint_every_steps, 0, INT32_MAX);
    in.integer("log_every_steps", config.log_every_steps, 1, INT32_MAX);
    check_effects(in, config);
    in.finish();
}

Json to_json(const TrainConfig& config) {
    const bool generated = config.dataset == TrainDataset::digits;
    Json out = Json::object();
    out["model"] = to_string(config.model);
    out["dataset"] = Json::object();
    out["dataset"]["name"] = to_string(config.dataset);
    out["dataset"]["path"] = config.dataset_path;
    if (generated) {
        out["train_samples"] = config.train_samples;
        out["test_samples"] = config.test_samples;
    }
    out["strategy"] = to_string(config.strategy);
    if (config.strategy == TrainStrategy::data_parallel) {
        out["all_reduce"] = kAllReduces[0];
    }
    out["devices"] = "cpu";
    out["epochs"] = config.epochs;
    out["max_steps"] = config.max_steps;
    out["batch_size"] = config.batch_size;
    out["learning_rate"] = config.learning_rate;
    out["scale_learning_rate"] = config.scale_learning_rate;
    out["optimizer"] = to_string(config.optimizer);
    if (config.optimizer == TrainOptimizer::sgd) {
        out["momentum"] = config.momentum;
    }
    out["seed"] = config.seed;
    out["precision"] = kPrecisions[0];
    out["accumulate"] = config.accumulate;
    out["dropout"] = config.dropout;
    if (config.model == TrainModel::mnist_convnet) {
        out["norm_mode"] = to_string(config.norm_mode);
    }
    out["loader_workers"] = config.loader_workers;
    out["shuffle"] = config.shuffle;
    out["checkpoint_every_steps"] = config.checkpoint_every_steps;
    out["log_every_steps"] = config.log_every_steps;
    return out;
}

}  // namespace lockstep
