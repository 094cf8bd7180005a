#include "job/trainer/device.hpp"

#include "job/base/text.hpp"
#include "job/model/spec/train_devices.hpp"
#include "job/trainer/cuda_device.hpp"

#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

std::atomic<int> portable_training{0};

// The agent and Slurm say so; a variable that is not there means all GPUs to CUDA.
bool were_given(const RankContext& context, const Environment& environment) {
    const std::optional<std::string> visible = environment("CUDA_VISIBLE_DEVICES");
    if (!visible) {
        return !context.managed() && cuda_device::visible() > 0;
    }
    return !visible->empty() && *visible != "-1" && *visible != "NoDevFiles";
}

constexpr std::string_view kNoCuda =
    "this lockstep-train is linked with a LibTorch without CUDA (cmake -DLOCKSTEP_TORCH=… links it "
    "with PyTorch's)";

// The number that this rank wants, where it takes one.
std::int32_t wanted_gpu(const TrainConfig& config, const RankContext& context, int visible) {
    if (!config.gpus.empty()) {
        return config.gpus[static_cast<std::size_t>(context.local_rank)];
    }
    // srun --gpus-per-task and the shares of a parameter_server's workers show each its own only.
    const bool shares = config.strategy == TrainStrategy::parameter_server;
    return shares || (visible == 1 && !context.managed()) ? 0 : context.local_rank;
}

Result<ChosenDevice> choose_gpus(const TrainConfig& config, const RankContext& context,
                                 const Environment& environment) {
    const int visible = cuda_device::visible();
    if (visible == 0) {
        return fail(Errc::invalid,
                    "no GPU can be used: " + why_no_gpu(cuda_device::none_because()));
    }
    Result<std::vector<std::int32_t>> gpus =
        gpus_of_rank(config, context, visible, environment("CUDA_VISIBLE_DEVICES").value_or(""));
    LOCKSTEP_TRY(gpus);
    std::string name = cuda_device::describe(gpus->front());
    return ChosenDevice{std::move(*gpus), std::move(name), ""};
}

// LibTorch goes on with who holds the rest, and with settings that are not the job's.
std::string without_advice(const std::string& line) {
    // 2.1 and later: "… has a total capacity of 79.11 GiB of which 1.06 GiB is free. Process …";
    // before: "(GPU 0; 79.11 GiB total capacity; … reserved in total by PyTorch) If reserved …".
    for (const std::string_view end : {" is free", " reserved in total by PyTorch)"}) {
        if (const auto at = line.find(end); at != std::string::npos) {
            return line.substr(0, at + end.size());
        }
    }
    return line;
}

}  // namespace

Result<std::vector<std::int32_t>> gpus_of_rank(const TrainConfig& config,
                                               const RankContext& context, int visible,
                                               const std::string& named) {
    std::vector<std::int32_t> out = config.gpus;
    if (!has_several_devices(config.strategy) && !out.empty() &&
        static_cast<std::size_t>(context.local_rank) >= out.size()) {
        return fail(Errc::invalid, "train.devices names " + std::to_string(out.size()) +
                                       " GPUs, and none for LOCAL_RANK " +
                                       std::to_string(context.local_rank));
    }
    if (!has_several_devices(config.strategy)) {
        out = {wanted_gpu(config, context, visible)};
    } else if (out.empty()) {
        out.resize(static_cast<std::size_t>(visible));
        std::iota(out.begin(), out.end(), 0);
    }
    for (const std::int32_t gpu : out) {
        if (gpu >= visible) {
            return fail(Errc::invalid, why_not_that_gpu(gpu, visible, named));
        }
    }
    if (out.size() > static_cast<std::size_t>(config.batch_size)) {
        return fail(Errc::invalid, std::to_string(out.size()) + " GPUs for a batch_size of " +
                                       std::to_string(config.batch_size) +
                                       ": raise it, or name fewer of them in train.devices");
    }
    return out;
}

std::string why_no_gpu(const std::string& torch_says) {
    constexpr std::string_view kFound = "found version ";  // 12020: CUDA 12.2
    const auto at = torch_says.find(kFound);
    if (torch_says.find("driver on your system is too old") == std::string::npos ||
        at == std::string::npos) {
        return torch_says;
    }
    const std::string digits = torch_says.substr(at + kFound.size());
    const auto version = to_int(digits.substr(0, digits.find_first_not_of("0123456789")));
    if (!version) {
        return torch_says;
    }
    return "the NVIDIA driver of this node is too old: it knows CUDA " +
           std::to_string(*version / 1000) + "." + std::to_string(*version % 1000 / 10) +
           ", and the LibTorch that lockstep-train is linked with needs a newer one; update the "
           "driver, or link lockstep-train with PyTorch's wheel for that CUDA "
           "(cmake -DLOCKSTEP_TORCH=…)";
}

std::string why_not_that_gpu(std::int32_t wanted, int visible, const std::string& named) {
    std::string out =
        "no GPU " + std::to_string(wanted) + ": this process sees " + std::to_string(visible);
    if (named.find("MIG-") != std::string::npos) {
        return out + " (of " + named + ": CUDA shows a process one slice of a divided GPU only; " +
               "ask for whole GPUs, or for one rank on each node)";
    }
    return out +
           " (a rank takes that of LOCAL_RANK; with resources.ranks_per_gpu several ranks "
           "share one)";
}

Error gpu_failure(const std::string& said, const GpuWork& work) {
    const std::string line = said.substr(0, said.find('\n'));
    if (line.find("out of memory") == std::string::npos) {
        return {Errc::internal, work.gpu + ": " + line};
    }
    std::string message =
        "a batch_size of " + std::to_string(work.batch_size) + " does not fit on " + work.gpu;
    message += work.finds_batch_size ? "" : " (train.find_batch_size finds one that does)";
    return {Errc::exhausted, std::move(message) + ": " + without_advice(line)};
}

Result<ChosenDevice> choose_device(const TrainConfig& config, const RankContext& context,
                                   const Environment& environment) {
    const bool serves = config.strategy == TrainStrategy::parameter_server && context.role == "ps";
    if (serves) {
        return ChosenDevice{};
    }
    const bool demanded = config.devices == TrainDevices::gpu;
    ChosenDevice out;
    if (demanded ||
        (config.devices == TrainDevices::automatic && were_given(context, environment))) {
        if (cuda_device::built()) {
            return choose_gpus(config, context, environment);
        }
        out.why_cpu = kNoCuda;
        if (demanded) {
            return fail(Errc::invalid, "devices gpu: " + out.why_cpu);
        }
    }
    if (config.precision == TrainPrecision::fp16) {
        return fail(Errc::invalid, "precision fp16 needs a GPU" +
                                       (out.why_cpu.empty() ? ", and this rank was given none"
                                                            : ": " + out.why_cpu) +
                                       "; on the CPU use bf16");
    }
    return out;
}

void use_device(at::Device device) {
    if (device.is_cuda()) {
        cuda_device::use(device.index());
    }
}

// LibTorch's allocator of pinned memory gives a block to nobody else before the copy is done.
at::Tensor to_device(const at::Tensor& host, at::Device device) {
    if (device.is_cpu()) {
        return host;
    }
    at::Tensor pinned =
        at::empty_strided(host.sizes(), host.strides(), host.options().pinned_memory(true));
    pinned.copy_(host);
    return pinned.to(device, /*non_blocking=*/true);
}

void seed_device(at::Device device, std::uint64_t key) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock{generator.mutex()};
    generator.set_current_seed(key);
}

PortableTraining::PortableTraining() {
    ++portable_training;
}
PortableTraining::~PortableTraining() {
    --portable_training;
}

bool trains_portably() {
    return portable_training.load(std::memory_order_relaxed) > 0;
}

bool own_loops(const at::Tensor& x) {
    return x.device().is_cpu() && !trains_portably();
}

}  // namespace lockstep
