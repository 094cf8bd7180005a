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

// The order of the rows in train_choices.cpp.
enum class TrainModel { mnist_convnet, mlp, alexnet_split, mobilenet_v2, seq2seq, gpt, linear };
enum class TrainDataset { digits, mnist, cifar10, images, text, pairs, table };
// Of answers that are classes; of those that are numbers.
enum class TrainLoss { cross_entropy, mse, huber };
enum class TrainStrategy {
    single,
    data_parallel,
    replicated,
    central_storage,
    parameter_server,
    pipeline
};
enum class TrainAllReduce { ring, hierarchical, reduce_to_one };
enum class TrainUpdate { sync, async };
enum class TrainOptimizer { adam, sgd, adamw, lamb };
enum class TrainPrecision { fp32, fp16, bf16 };
enum class TrainDevices { automatic, cpu, gpu };
enum class TrainSchedule { constant, cosine, linear };
enum class TrainExport { none, safetensors };
// train: batch statistics, moving averages updated. eval: the moving averages are used as they
// are and stay constant, which makes a step independent of how a batch is split over ranks.
enum class NormMode { train, eval };

struct TrainConfig {
    TrainModel model = TrainModel::mnist_convnet;
    TrainDataset dataset = TrainDataset::digits;
    // Folder of the files, or the file (text, pairs, table). digits: where to keep the generated
    // files; empty = a cache folder beside the checkpoints. Required by all others.
    std::string dataset_path;
    // Of data sets of images: height and width they are brought to; 0 = as they are. images: 224.
    std::int32_t resize = 0;
    bool augment = true;        // images only: those for training are cut and mirrored at random
    std::int32_t context = 64;  // text: bytes of a sample; pairs: at most so many of each text
    std::int32_t train_samples = 30'000;        // digits only
    std::int32_t test_samples = 2'000;          // digits only
    TrainLoss loss = TrainLoss::cross_entropy;  // table: mse unless given
    TrainStrategy strategy = TrainStrategy::data_parallel;
    TrainAllReduce all_reduce = TrainAllReduce::ring;  // data_parallel only
    TrainUpdate update = TrainUpdate::sync;            // parameter_server only
    std::int32_t stages = 0;         // pipeline only: ranks a model is split over; 0 = all
    std::int32_t micro_batches = 4;  // pipeline only: parts of a batch
    TrainDevices devices = TrainDevices::automatic;
    // Of `devices`: "gpu:2,3" are those of the GPUs that a node has for the job. A rank takes the
    // one in the place of its LOCAL_RANK; with replicated and central_storage it takes all. Empty:
    // as if all were named.
    std::vector<std::int32_t> gpus;
    std::int32_t replicas = 1;  // of `devices`: "cpu:0,1" are two
    std::int32_t epochs = 2;
    std::int64_t max_steps = 0;    // optimizer steps over all epochs; 0 = no limit but `epochs`
    std::int32_t batch_size = 64;  // samples per rank and micro-step
    bool find_batch_size = false;  // a new run doubles batch_size for as long as it fits
    double learning_rate = 0.001;
    // Multiply learning_rate by the number of ranks, and by what find_batch_size multiplied.
    bool scale_learning_rate = false;
    TrainOptimizer optimizer = TrainOptimizer::adam;
    double momentum = 0.9;       // sgd only
    double weight_decay = 0.0;   // adam, sgd: added to the gradient; adamw, lamb: decoupled
    double gradient_clip = 0.0;  // largest norm of the mean gradient; 0 = no limit
    TrainSchedule schedule = TrainSchedule::constant;
    std::int32_t warmup_steps = 0;  // steps over which the rate grows from 0 to learning_rate
    TrainPrecision precision = TrainPrecision::fp32;
    std::int64_t seed = 0;
    std::string weights;  // safetensors file that a new run begins with; empty = random ones
    // What the end of the training leaves beside the checkpoints.
    TrainExport export_as = TrainExport::safetensors;
    std::int32_t accumulate = 1;  // micro-steps per optimizer step
    double dropout = 0.5;
    NormMode norm_mode = NormMode::train;  // mnist_convnet, mobilenet_v2
    std::int32_t loader_workers = 2;       // threads that prepare batches; 0 = the training thread
    bool shuffle = true;
    std::int32_t checkpoint_every_steps = 200;  // 0 = only when asked to stop and at the end
    std::int32_t log_every_steps = 1;           // lines on stdout; every step is reported anyway

    bool operator==(const TrainConfig&) const = default;
};

std::string_view to_string(TrainModel value);
std::string_view to_string(TrainDataset value);
std::string_view to_string(TrainLoss value);
std::string_view to_string(TrainStrategy value);
std::string_view to_string(TrainAllReduce value);
std::string_view to_string(TrainUpdate value);
std::string_view to_string(TrainOptimizer value);
std::string_view to_string(TrainPrecision value);
std::string_view to_string(TrainSchedule value);
std::string_view to_string(TrainExport value);
std::string_view to_string(NormMode value);

// Reads the object at `pointer` (RFC 6901) into `config`; absent fields keep their values. Every
// mistake is added to `errors`: wrong types and ranges, unknown fields, values that are known but
// "not available yet", and fields that would have no effect with the others as they are.
void read_train_config(const Json& object, const std::string& pointer, TrainConfig& config,
                       std::vector<FieldError>& errors);

std::string_view to_string(TrainDevices value);

// What is wrong with this strategy for a job of so many ranks; empty: nothing. The roles of servers
// and workers are checked with the roles.
std::string check_train_ranks(const TrainConfig& config, std::int32_t ranks);

// The whole configuration, defaults filled in, without the fields that have no effect;
// read_train_config() of it gives the same value.
Json to_json(const TrainConfig& config);

}  // namespace lockstep
