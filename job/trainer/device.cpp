#include "job/trainer/device.hpp"

#include "job/trainer/cuda_device.hpp"

#include <atomic>
#include <mutex>
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

// Empty: it can compute on GPUs.
std::string no_gpu_reason(const TrainConfig& config) {
    if (!computes_on_gpus(config.strategy)) {
        return "strategy " + std::string{to_string(config.strategy)} + " computes on the CPU only";
    }
    if (!cuda_device::built()) {
        return "this lockstep-train is linked with a LibTorch without CUDA (cmake "
               "-DLOCKSTEP_TORCH=… links it with PyTorch's)";
    }
    return "";
}

Result<ChosenDevice> choose_gpu(const RankContext& context) {
    const int visible = cuda_device::visible();
    if (visible == 0) {
        return fail(Errc::invalid, "no GPU can be used: " + cuda_device::none_because());
    }
    // srun --gpus-per-task shows each task its own one only.
    const bool own = visible == 1 && !context.managed();
    if (context.local_rank >= visible && !own) {
        return fail(Errc::invalid,
                    "no GPU " + std::to_string(context.local_rank) + ": this process sees " +
                        std::to_string(visible) +
                        " (a rank takes that of LOCAL_RANK; with resources.ranks_per_gpu several "
                        "ranks share one)");
    }
    const auto gpu = static_cast<at::DeviceIndex>(own ? 0 : context.local_rank);
    return ChosenDevice{at::Device{at::kCUDA, gpu}, cuda_device::describe(gpu), ""};
}

}  // namespace

Result<ChosenDevice> choose_device(const TrainConfig& config, const RankContext& context,
                                   const Environment& environment) {
    const bool demanded = config.devices == TrainDevices::gpu;
    ChosenDevice out;
    if (demanded || (config.devices == TrainDevices::automatic && config.replicas == 1 &&
                     were_given(context, environment))) {
        out.why_cpu = no_gpu_reason(config);
        if (out.why_cpu.empty()) {
            return choose_gpu(context);
        }
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
