#include "job/model/spec/train_devices.hpp"

#include "job/base/limits.hpp"
#include "job/model/spec/train_choices.hpp"

#include <cstdint>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::int32_t kReplicasMax = 64;  // threads of one process

}  // namespace

std::string_view to_string(TrainDevices value) {
    constexpr std::string_view kWords[] = {"auto", "cpu", "gpu"};
    return kWords[static_cast<std::size_t>(value)];
}

bool computes_on_gpus(TrainStrategy strategy) {
    return strategy == TrainStrategy::single || strategy == TrainStrategy::data_parallel;
}

// auto, cpu, gpu, or cpu:0,1 for as many devices: the CPU is as many as one asks for.
void read_train_devices(ObjectReader& in, TrainConfig& config) {
    std::string devices = "auto";
    in.string("devices", devices, limits::kTextBytes);
    config.replicas = 1;
    config.devices = devices == "auto"  ? TrainDevices::automatic
                     : devices == "gpu" ? TrainDevices::gpu
                                        : TrainDevices::cpu;
    if (devices == "auto" || devices == "cpu") {
        return;
    }
    if (devices == "gpu") {
        if (!computes_on_gpus(config.strategy)) {
            in.error("devices", "strategy " + std::string{to_string(config.strategy)} +
                                    " computes on the CPU only");
        }
        return;
    }
    if (devices.starts_with("gpu:")) {
        in.error("devices", "a rank takes the GPU of its LOCAL_RANK: gpu, without numbers");
        return;
    }
    std::int32_t number = 0;
    for (std::string_view rest = devices.starts_with("cpu:") ? std::string_view{devices}.substr(4)
                                                             : std::string_view{};
         !rest.empty() && number < kReplicasMax; ++number) {
        const std::string word = std::to_string(number);
        if (!rest.starts_with(word)) {
            break;
        }
        rest.remove_prefix(word.size());
        if (rest.empty()) {
            config.replicas = number + 1;
            return;
        }
        if (rest.front() != ',') {
            break;
        }
        rest.remove_prefix(1);
    }
    in.error("devices", "must be one of: auto, cpu, gpu, cpu:0,1 and so on to cpu:0,…," +
                            std::to_string(kReplicasMax - 1));
}

std::string train_devices_text(const TrainConfig& config) {
    std::string out{config.replicas > 1 ? "cpu" : to_string(config.devices)};
    for (std::int32_t i = 0; config.replicas > 1 && i < config.replicas; ++i) {
        out += (i == 0 ? ":" : ",") + std::to_string(i);
    }
    return out;
}

// What needs a GPU where the job asks for none.
void check_train_gpus(const JobSpec& spec, const std::string& pointer,
                      std::vector<FieldError>& errors) {
    const std::string remedy = ": /resources/gpus_per_node says how many, and asks for none";
    if (!spec.train || spec.resources.gpus_per_node > 0) {
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
