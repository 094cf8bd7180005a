#include "job/model/spec/train_config.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/model/limits/model_limits.hpp"
#include "job/model/spec/train_choices.hpp"
#include "job/model/spec/train_devices.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 2> kNormModes{"train", "eval"};
static_assert(names_all_of<NormMode>(kNormModes));

// What dataset.path has to name, by TrainDataset.
constexpr std::array<const char*, 7> kDatasetPaths{"no path",
                                                   "the folder that holds its four IDX files",
                                                   "the folder that holds its six binary files",
                                                   "the folder that holds train and val",
                                                   "the file that is to be read",
                                                   "the file of its lines, source TAB target",
                                                   "the file of its rows"};
static_assert(names_all_of<TrainDataset>(kDatasetPaths));
constexpr std::int32_t kImageSide = 224;  // of ImageNet's networks
constexpr double kMobileDropout = 0.2;    // torchvision's

std::string not_available(std::string_view word, std::string_view why = {}) {
    return "\"" + std::string{word} + "\" " +
           (why.empty() ? "is not available yet" : std::string{why});
}

// Reads one of the words that are built. The others are refused by name, and no message offers
// them.
template <class Enum>
void read_choice(ObjectReader& in, std::string_view key, TrainChoices rows, Enum& target) {
    std::vector<std::string_view> words;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].built) {
            words.push_back(rows[i].word);
            places.push_back(i);
        }
    }
    if (const Json* value = in.raw(key); value != nullptr && value->is_string()) {
        const auto& text = value->get_ref<const std::string&>();
        const auto later = [&](const TrainChoice& row) { return !row.built && row.word == text; };
        const auto refused = std::find_if(rows.begin(), rows.end(), later);
        if (refused != rows.end()) {
            in.error(key, not_available(text, refused->why_not));
            return;
        }
    }
    std::size_t index = words.size();
    in.word(key, index, words);
    if (index < words.size()) {
        target = static_cast<Enum>(places[index]);
    }
}

void refuse_without_effect(ObjectReader& in, std::string_view key, bool has_effect,
                           std::string_view why) {
    if (in.has(key) && !has_effect) {
        in.error(key, "has no effect with " + std::string{why});
    }
}

bool is_text(TrainDataset dataset) {
    return dataset == TrainDataset::text || dataset == TrainDataset::pairs;
}

// What a model reads, as an error says it.
std::string_view kind_of(TrainDataset dataset) {
    switch (dataset) {
        case TrainDataset::text:
            return "text";
        case TrainDataset::pairs:
            return "pairs of texts";
        case TrainDataset::table:
            return "tables";
        default:
            return "images";
    }
}

bool reads_tables(TrainModel model) {
    return model == TrainModel::linear || model == TrainModel::mlp;
}

std::string_view kind_read_by(TrainModel model) {
    switch (model) {
        case TrainModel::gpt:
            return kind_of(TrainDataset::text);
        case TrainModel::seq2seq:
            return kind_of(TrainDataset::pairs);
        default:
            return kind_of(TrainDataset::digits);
    }
}

bool has_dropout(const TrainConfig& config) {
    return config.model != TrainModel::gpt && config.model != TrainModel::seq2seq &&
           config.model != TrainModel::linear;
}

void read_dataset(ObjectReader& in, TrainConfig& config, std::vector<FieldError>& errors) {
    const Json* object = in.raw("dataset");
    if (object != nullptr) {
        ObjectReader data{*object, in.pointer("dataset"), errors};
        read_choice(data, "name", train_datasets(), config.dataset);
        data.string("path", config.dataset_path, limits::kPathBytes);
        data.integer("resize", config.resize, 0, limits::kTrainResize);
        refuse_without_effect(
            data, "resize", kind_of(config.dataset) == kind_of(TrainDataset::digits),
            "dataset " + std::string{to_string(config.dataset)} + ", which has no images");
        data.boolean("augment", config.augment);
        refuse_without_effect(data, "augment", config.dataset == TrainDataset::images,
                              "dataset " + std::string{to_string(config.dataset)});
        data.finish();
    }
    if (config.dataset == TrainDataset::images && config.resize == 0) {
        config.resize = kImageSide;
    }
    if (config.dataset != TrainDataset::digits && config.dataset_path.empty()) {
        errors.push_back({in.pointer("dataset") + "/path",
                          std::string{to_string(config.dataset)} + " needs " +
                              kDatasetPaths[static_cast<std::size_t>(config.dataset)]});
    }
    in.integer("context", config.context, 1, limits::kTrainContext);
    refuse_without_effect(in, "context", is_text(config.dataset),
                          "dataset " + std::string{to_string(config.dataset)});
    in.integer("train_samples", config.train_samples, 1, limits::kTrainSamples);
    in.integer("test_samples", config.test_samples, 1, limits::kTrainSamples);
    const bool generated = config.dataset == TrainDataset::digits;
    const std::string other = "dataset " + std::string{to_string(config.dataset)};
    refuse_without_effect(in, "train_samples", generated, other);
    refuse_without_effect(in, "test_samples", generated, other);
}

bool has_norm_mode(const TrainConfig& config) {
    return config.model == TrainModel::mnist_convnet || config.model == TrainModel::mobilenet_v2;
}

// Fields of a training run that only some choices give a meaning to.
void check_effects(ObjectReader& in, const TrainConfig& config) {
    const std::string strategy = "strategy " + std::string{to_string(config.strategy)};
    refuse_without_effect(in, "momentum", config.optimizer == TrainOptimizer::sgd,
                          "optimizer " + std::string{to_string(config.optimizer)});
    const std::string model{to_string(config.model)};
    const std::string_view reads = kind_read_by(config.model);
    const bool table = config.dataset == TrainDataset::table;
    if (const std::string_view given = kind_of(config.dataset);
        reads != given && !(table && reads_tables(config.model))) {
        const char* needed = config.model == TrainModel::gpt       ? ": it needs dataset text"
                             : config.model == TrainModel::seq2seq ? ": it needs dataset pairs"
                             : table                               ? ": linear and mlp read them"
                                                                   : "";
        in.error("model",
                 model + " reads " + std::string{reads} + ", not " + std::string{given} + needed);
    }
    if (table == (config.loss == TrainLoss::cross_entropy)) {
        in.error("loss", std::string{to_string(config.loss)} + " is for " +
                             (table ? "classes; a table's last column has numbers: mse or huber"
                                    : "the numbers of a table; this data set has classes"));
    }
    refuse_without_effect(in, "dropout", has_dropout(config),
                          "model " + model + ", which has none");
    refuse_without_effect(in, "norm_mode", has_norm_mode(config),
                          "model " + model + ", which has no batch normalisation");
    refuse_without_effect(in, "all_reduce", config.strategy == TrainStrategy::data_parallel,
                          strategy);
    refuse_without_effect(in, "update", config.strategy == TrainStrategy::parameter_server,
                          strategy);
    const bool pipeline = config.strategy == TrainStrategy::pipeline;
    refuse_without_effect(in, "stages", pipeline, strategy);
    refuse_without_effect(in, "micro_batches", pipeline, strategy);
    if (pipeline && config.batch_size % config.micro_batches != 0) {
        in.error("micro_batches", "batch_size " + std::to_string(config.batch_size) +
                                      " is not a multiple of " +
                                      std::to_string(config.micro_batches));
    }
    if (has_several_devices(config.strategy) && config.replicas > config.batch_size) {
        in.error("devices", std::to_string(config.replicas) + " devices for a batch_size of " +
                                std::to_string(config.batch_size));
    }
    if (config.precision == TrainPrecision::fp16 && config.devices == TrainDevices::cpu) {
        in.error("precision", "fp16 needs a GPU; on the CPU use bf16");
    }
    if (!has_several_devices(config.strategy) && config.replicas > 1) {
        in.error("devices", "a rank has one device with " + strategy +
                                ": only replicated and central_storage have several");
    }
}

}  // namespace

std::string_view to_string(NormMode value) {
    return kNormModes[static_cast<std::size_t>(value)];
}

std::string check_train_ranks(const TrainConfig& config, std::int32_t ranks) {
    const std::string ranks_words = std::to_string(ranks) + " ranks";
    const std::string strategy{to_string(config.strategy)};
    switch (config.strategy) {
        case TrainStrategy::single:
            return ranks == 1 ? ""
                              : "single is one process: ask for 1 node × 1 rank, or use "
                                "data_parallel";
        case TrainStrategy::replicated:
        case TrainStrategy::central_storage:
            return ranks == 1 ? ""
                              : strategy +
                                    " is one process with several devices: ask for 1 node "
                                    "× 1 rank, or use data_parallel";
        case TrainStrategy::parameter_server:
            return ranks >= 2 ? "" : "parameter_server needs a server and a worker: 2 ranks";
        case TrainStrategy::pipeline: {
            const std::int32_t stages = config.stages == 0 ? ranks : config.stages;
            const auto layers = train_models()[static_cast<std::size_t>(config.model)].layers;
            if (ranks % stages != 0) {
                return "pipeline: " + ranks_words + " do not make whole chains of " +
                       std::to_string(stages) + " stages";
            }
            return stages <= layers
                       ? ""
                       : "pipeline: " + std::to_string(stages) + " stages, but model " +
                             std::string{to_string(config.model)} + " has " +
                             std::to_string(layers) + " layers";
        }
        case TrainStrategy::data_parallel:
            break;
    }
    return "";
}

void read_train_config(const Json& object, const std::string& pointer, TrainConfig& config,
                       std::vector<FieldError>& errors) {
    ObjectReader in{object, pointer, errors};
    read_choice(in, "model", train_models(), config.model);
    read_dataset(in, config, errors);
    if (config.dataset == TrainDataset::table && config.loss == TrainLoss::cross_entropy) {
        config.loss = TrainLoss::mse;
    }
    read_choice(in, "loss", train_losses(), config.loss);
    read_choice(in, "strategy", train_strategies(), config.strategy);
    read_choice(in, "all_reduce", train_all_reduces(), config.all_reduce);
    read_choice(in, "update", train_updates(), config.update);
    in.integer("stages", config.stages, 0, limits::kTrainStages);
    in.integer("micro_batches", config.micro_batches, 1, limits::kTrainBatchSize);
    read_train_devices(in, config);
    in.integer("epochs", config.epochs, 1, limits::kTrainEpochs);
    in.integer("max_steps", config.max_steps, 0, limits::kTrainSteps);
    in.integer("batch_size", config.batch_size, 1, limits::kTrainBatchSize);
    in.boolean("find_batch_size", config.find_batch_size);
    in.number("learning_rate", config.learning_rate, limits::kTrainRateLeast, limits::kTrainRate);
    in.boolean("scale_learning_rate", config.scale_learning_rate);
    read_choice(in, "optimizer", train_optimizers(), config.optimizer);
    in.number("momentum", config.momentum, 0.0, 1.0);
    in.number("weight_decay", config.weight_decay, 0.0, 1.0);
    in.number("gradient_clip", config.gradient_clip, 0.0, limits::kTrainClip);
    read_choice(in, "schedule", train_schedules(), config.schedule);
    in.integer("warmup_steps", config.warmup_steps, 0, INT32_MAX);
    in.integer("seed", config.seed, 0, INT64_MAX);
    in.string("weights", config.weights, limits::kPathBytes);
    read_choice(in, "export", train_exports(), config.export_as);
    read_choice(in, "precision", train_precisions(), config.precision);
    in.integer("accumulate", config.accumulate, 1, limits::kTrainAccumulate);
    if (config.model == TrainModel::mobilenet_v2) {
        config.dropout = kMobileDropout;
    }
    in.number("dropout", config.dropout, 0.0, 0.95);
    std::size_t norm_mode = static_cast<std::size_t>(config.norm_mode);
    in.word("norm_mode", norm_mode, {kNormModes.begin(), kNormModes.end()});
    config.norm_mode = static_cast<NormMode>(norm_mode);
    in.integer("loader_workers", config.loader_workers, 0, limits::kTrainLoaderWorkers);
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
    if (is_text(config.dataset)) {
        out["context"] = config.context;
    } else if (config.dataset != TrainDataset::table) {
        out["dataset"]["resize"] = config.resize;
        if (config.dataset == TrainDataset::images) {
            out["dataset"]["augment"] = config.augment;
        }
    }
    if (generated) {
        out["train_samples"] = config.train_samples;
        out["test_samples"] = config.test_samples;
    }
    out["loss"] = to_string(config.loss);
    out["strategy"] = to_string(config.strategy);
    if (config.strategy == TrainStrategy::data_parallel) {
        out["all_reduce"] = to_string(config.all_reduce);
    }
    if (config.strategy == TrainStrategy::parameter_server) {
        out["update"] = to_string(config.update);
    }
    if (config.strategy == TrainStrategy::pipeline) {
        out["stages"] = config.stages;
        out["micro_batches"] = config.micro_batches;
    }
    out["devices"] = train_devices_text(config);
    out["epochs"] = config.epochs;
    out["max_steps"] = config.max_steps;
    out["batch_size"] = config.batch_size;
    out["find_batch_size"] = config.find_batch_size;
    out["learning_rate"] = config.learning_rate;
    out["scale_learning_rate"] = config.scale_learning_rate;
    out["optimizer"] = to_string(config.optimizer);
    if (config.optimizer == TrainOptimizer::sgd) {
        out["momentum"] = config.momentum;
    }
    out["weight_decay"] = config.weight_decay;
    out["gradient_clip"] = config.gradient_clip;
    out["schedule"] = to_string(config.schedule);
    out["warmup_steps"] = config.warmup_steps;
    out["seed"] = config.seed;
    out["weights"] = config.weights;
    out["export"] = to_string(config.export_as);
    out["precision"] = to_string(config.precision);
    out["accumulate"] = config.accumulate;
    if (has_dropout(config)) {
        out["dropout"] = config.dropout;
    }
    if (has_norm_mode(config)) {
        out["norm_mode"] = to_string(config.norm_mode);
    }
    out["loader_workers"] = config.loader_workers;
    out["shuffle"] = config.shuffle;
    out["checkpoint_every_steps"] = config.checkpoint_every_steps;
    out["log_every_steps"] = config.log_every_steps;
    return out;
}

}  // namespace lockstep
