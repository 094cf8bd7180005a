// The `train` object of a job: what the native trainer (lockstep-train) is asked to do.
// Plain values, any thread. The same reader serves the daemon (when a job is submitted) and the
// rank (when it starts), so what is refused is refused before anything is queued.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class TrainModel { mnist_convnet, mlp };
enum class TrainDataset { digits, mnist };
enum class TrainStrategy { single, data_parallel };
enum class TrainOptimizer { adam, sgd };
// train: batch statistics, moving averages updated. eval: the moving averages are used as they
// are and stay constant, which makes a step independent of how a batch is split over ranks.
enum class NormMode { train, eval };

struct TrainConfig {
    TrainModel model = TrainModel::mnist_convnet;
    TrainDataset dataset = TrainDataset::digits;
    // Folder of the IDX files. mnist: required. digits: where to keep the generated files; empty =
    // a cache folder beside the checkpoints.
    std::string dataset_path;
    std::int32_t train_samples = 30'000;  // digits only
    std::int32_t test_samples = 2'000;    // digits only
    TrainStrategy strategy = TrainStrategy::data_parallel;
    std::int32_t epochs = 2;
    std::int64_t max_steps = 0;    // optimizer steps over all epochs; 0 = no limit but `epochs`
    std::int32_t batch_size = 64;  // samples per rank and micro-step
    double learning_rate = 0.001;
    bool scale_learning_rate = false;  // multiply learning_rate by the number of ranks
    TrainOptimizer optimizer = TrainOptimizer::adam;
    double momentum = 0.9;  // sgd only
    std::int64_t seed = 0;
    std::int32_t accumulate = 1;  // micro-steps per optimizer step
    double dropout = 0.5;
    NormMode norm_mode = NormMode::train;  // mnist_convnet only
    std::int32_t loader_workers = 2;       // threads that prepare batches; 0 = the training thread
    bool shuffle = true;
    std::int32_t checkpoint_every_steps = 200;  // 0 = only when asked to stop and at the end
    std::int32_t log_every_steps = 1;           // lines on stdout; every step is reported anyway

    bool operator==(const TrainConfig&) const = default;
};

std::string_view to_string(TrainModel value);
std::string_view to_string(TrainDataset value);
std::string_view to_string(TrainStrategy value);
std::string_view to_string(TrainOptimizer value);
std::string_view to_string(NormMode value);

// Reads the object at `pointer` (RFC 6901) into `config`; absent fields keep their values. Every
// mistake is added to `errors`: wrong types and ranges, unknown fields, values that are known but
// "not available yet", and fields that would have no effect with the others as they are.
void read_train_config(const Json& object, const std::string& pointer, TrainConfig& config,
                       std::vector<FieldError>& errors);

// The whole configuration, defaults filled in, without the fields that have no effect;
// read_train_config() of it gives the same value.
Json to_json(const TrainConfig& config);

}  // namespace lockstep
