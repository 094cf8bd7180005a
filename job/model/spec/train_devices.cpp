#include "job/model/spec/train_devices.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/limits/model_limits.hpp"
#include "job/model/spec/train_choices.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace lockstep {
namespace {

// "0,1,2": numbers below limits::kTrainReplicas, none twice. Empty: it is no such list.
std::vector<std::int32_t> numbers_of(std::string_view list) {
    std::vector<std::int32_t> out;
    for (const std::string& word : split(list, ',')) {
        const auto number = to_int(word);
        if (!number || *number < 0 || *number >= limits::kTrainReplicas ||
            word != std::to_string(*number) || std::ranges::find(out, *number) != out.end()) {
            return {};
        }
        out.push_back(static_cast<std::int32_t>(*number));
    }
    return out;
}

bool counts_from_zero(const std::vector<std::int32_t>& numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] != static_cast<std::int32_t>(i)) {
            return false;
        }
    }
    return true;
}

}  // namespace

bool has_several_devices(TrainStrategy strategy) {
    return strategy == TrainStrategy::replicated || strategy == TrainStrategy::central_storage;
}

std::string_view to_string(TrainDevices value) {
    constexpr std::string_view kWords[] = {"auto", "cpu", "gpu"};
    static_assert(is_count_of<TrainDevices, std::size(kWords)>());
    return kWords[static_cast<std::size_t>(value)];
}

// cpu:0,1 are as many devices: the CPU is as many as one asks for.
void read_train_devices(ObjectReader& in, TrainConfig& config) {
    std::string devices = "auto";
    in.string("devices", devices, limits::kTextBytes);
    config.replicas = 1;
    config.gpus.clear();
    config.devices = devices == "auto"            ? TrainDevices::automatic
                     : devices.starts_with("gpu") ? TrainDevices::gpu
                                                  : TrainDevices::cpu;
    if (devices == "auto" || devices == "cpu" || devices == "gpu") {
        return;
    }
    const bool gpus = devices.starts_with("gpu:");
    const std::vector<std::int32_t> numbers = gpus || devices.starts_with("cpu:")
                                                  ? numbers_of(std::string_view{devices}.substr(4))
                                                  : std::vector<std::int32_t>{};
    if (numbers.empty() || (!gpus && !counts_from_zero(numbers))) {
        in.error("devices", "must be one of: auto, cpu, gpu, gpu:0,1 and other numbers below " +
                                std::to_string(limits::kTrainReplicas) +
                                ", none twice, cpu:0,1 and so on to cpu:0,…," +
                                std::to_string(limits::kTrainReplicas - 1));
        return;
    }
    const auto count = static_cast<std::int32_t>(numbers.size());
    if (gpus) {
        if (config.strategy == TrainStrategy::parameter_server) {
            in.error("devices",
                     "strategy parameter_server gives each worker an equal share of its "
                     "node's GPUs, and the servers none: gpu, without numbers");
        }
        config.gpus = numbers;
        config.replicas = has_several_devices(config.strategy) ? count : 1;
    } else {
        config.replicas = count;
    }
}

std::string train_devices_text(const TrainConfig& config) {
    std::vector<std::int32_t> numbers;
    if (config.devices == TrainDevices::gpu) {
        numbers = config.gpus;
    } else if (config.devices == TrainDevices::cpu && config.replicas > 1) {
        numbers.resize(static_cast<std::size_t>(config.replicas));
        std::iota(numbers.begin(), numbers.end(), 0);
    }
    std::string out{to_string(config.devices)};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        out += (i == 0 ? ":" : ",") + std::to_string(numbers[i]);
    }
    return out;
}

namespace {

// Of the GPUs that devices names: those that the node's share of the job does not have, and ranks
// that there is none for.
void check_named_gpus(const JobSpec& spec, const TrainConfig& train, const std::string& pointer,
                      std::vector<FieldError>& errors) {
    const std::vector<std::int32_t>& gpus = train.gpus;
    if (gpus.empty()) {
        return;
    }
    const std::int32_t most = *std::ranges::max_element(gpus);
    if (most >= spec.resources.gpus_per_node) {
        errors.push_back({pointer, "gpu " + std::to_string(most) + " is not there: a node has " +
                                       std::to_string(spec.resources.gpus_per_node) +
                                       " (/resources/gpus_per_node), and the first is 0"});
    }
    const auto takers = static_cast<std::int64_t>(gpus.size()) * spec.resources.ranks_per_gpu;
    if (!has_several_devices(train.strategy) && spec.ranks_per_node() > takers) {
        errors.push_back({pointer, std::to_string(gpus.size()) + " GPUs for " +
                                       std::to_string(spec.ranks_per_node()) +
                                       " ranks of a node, each of which takes the one in the place "
                                       "of its LOCAL_RANK"});
    }
}

}  // namespace

// What needs a GPU where the job asks for none.
void check_train_gpus(const JobSpec& spec, const std::string& pointer,
                      std::vector<FieldError>& errors) {
    const std::string remedy = ": /resources/gpus_per_node says how many, and asks for none";
    if (!spec.train) {
        return;
    }
    if (spec.resources.gpus_per_node > 0) {
        check_named_gpus(spec, *spec.train, pointer + "/devices", errors);
        return;
    }
    if (spec.train->devices == TrainDevices::gpu) {
        errors.push_back({pointer + "/devices", "gpu needs GPUs" + remedy});
    } else if (spec.train->precision == TrainPrecision::fp16) {
        errors.push_back(
            {pointer + "/precision", "fp16 needs GPUs" + remedy + "; on the CPU use bf16"});
    }
}

}  // namespace lockstep
