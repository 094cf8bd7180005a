// What a user should change, where a rank's error is known to come of what its job asks for, or of
// a node whose driver, GPU or libraries do not fit what the rank was built with.
#include "job/model/job.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

// Of torch 1.13 to 2.15, of the CUDA runtime and of XLA.
constexpr std::array<std::string_view, 7> kNoGpu{"No CUDA GPUs are available",
                                                 "no CUDA-capable device is detected",
                                                 "Found no NVIDIA driver on your system",
                                                 "only supported with GPUs, no GPUs found",
                                                 "requires at least one CUDA device",
                                                 "No visible GPU devices",
                                                 "no supported devices found for platform CUDA"};
constexpr std::string_view kTorchDriver = "driver on your system is too old";
// torch's, and CUDA's on PTX of a newer compiler.
constexpr std::array<std::string_view, 3> kOldDriver{
    kTorchDriver, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "PTX was compiled with an unsupported toolchain"};
// The CUDA runtime's, which Paddle, TensorFlow, XLA and NCCL pass on, also where there is no
// driver.
constexpr std::array<std::string_view, 2> kOldOrNoDriver{
    "CUDA driver version is insufficient for CUDA runtime version", "cudaErrorInsufficientDriver"};
constexpr std::array<std::string_view, 4> kNoKernel{
    "no kernel image is available for execution on the device", "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "cudaErrorNoKernelImageForDevice", "device kernel image is invalid"};
constexpr std::string_view kNoFile = ": cannot open shared object file";
// Of CUDA's toolkit and NCCL, which wheels bring or modules: by how their names begin.
constexpr std::array<std::string_view, 13> kToolkit{
    "libcudart.so",    "libnccl.so",   "libcublas.so",   "libcublasLt.so", "libcudnn",
    "libcufft.so",     "libcurand.so", "libcusolver.so", "libcusparse",    "libnvrtc",
    "libnvJitLink.so", "libnvshmem",   "libcupti.so"};
constexpr std::string_view kNcclsCuda = "unhandled cuda error";

bool says_any(std::string_view text, const auto& words) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view one) {
        return text.find(one) != std::string_view::npos;
    });
}

// "found version 12020" of torch → ", which knows CUDA 12.2,"; else nothing.
std::string cuda_of_driver(std::string_view error) {
    constexpr std::string_view kFound = "found version ";
    const auto at = error.find(kFound, std::min(error.find(kTorchDriver), error.size()));
    int version = 0;
    for (auto i = at == std::string_view::npos ? error.size() : at + kFound.size();
         i < error.size() && error[i] >= '0' && error[i] <= '9' && version < 1'000'000; ++i) {
        version = version * 10 + (error[i] - '0');
    }
    return version < 1000 ? ""
                          : ", which knows CUDA " + std::to_string(version / 1000) + "." +
                                std::to_string(version % 1000 / 10) + ",";
}

// "libcudart.so.12", which the loader has not found; "" = it has not said so.
std::string_view missing_library(std::string_view error) {
    const std::string_view before = error.substr(0, std::min(error.find(kNoFile), error.size()));
    if (before.size() == error.size()) {
        return "";
    }
    const auto start = before.find_last_of(" /\n'\"(");
    return before.substr(start == std::string_view::npos ? 0 : start + 1);
}

std::string hint_of_library(std::string_view error) {
    const std::string_view library = missing_library(error);
    if (library.starts_with("libcuda.so")) {
        return " (" + std::string{library} +
               " comes with NVIDIA's driver: the node has none, or the container was not given it)";
    }
    const bool ours = std::any_of(kToolkit.begin(), kToolkit.end(),
                                  [&](std::string_view name) { return library.starts_with(name); });
    if (ours) {
        return " (the node does not have " + std::string{library} +
               ", or not where the loader looks: load the module of the CUDA that the framework "
               "was built for, install its wheel, or set LD_LIBRARY_PATH)";
    }
    return "";
}

// "": nothing is known of it.
std::string hint_of_node(const event::RankExited& exit) {
    const std::string& error = exit.error;
    // torch only warns of an old driver where a script asks first, and then finds no GPU.
    if (says_any(error, kOldDriver) ||
        (says_any(error, kNoGpu) && exit.log_tail.find(kTorchDriver) != std::string::npos)) {
        const std::string_view said = says_any(error, kOldDriver) ? error : exit.log_tail;
        return " (the NVIDIA driver of " + exit.node + cuda_of_driver(said) +
               " is older than the framework's CUDA needs: take nodes with a newer driver, or a "
               "module or wheel that was built for an older CUDA)";
    }
    if (says_any(error, kOldOrNoDriver)) {
        return " (" + exit.node +
               " has no NVIDIA driver, or the container was not given it, or it is older than the "
               "framework's CUDA needs)";
    }
    if (says_any(error, kNoKernel)) {
        return " (the framework was not built for the GPUs of " + exit.node +
               ", which are newer or older than those it knows: take another wheel or module, or "
               "other GPUs by slurm.constraint)";
    }
    if (error.find("undefined symbol: nccl") != std::string::npos) {
        return " (an older NCCL was loaded than the framework was built with: LD_LIBRARY_PATH, "
               "LD_PRELOAD or a module puts it before the framework's own)";
    }
    // With NCCL's last word, which the message has, it is known which.
    if (error.find(kNcclsCuda) != std::string::npos &&
        error.find("Cuda failure") == std::string::npos) {
        return " (a call of CUDA failed in NCCL; NCCL_DEBUG=WARN in the job's environment prints "
               "which and why)";
    }
    return hint_of_library(error);
}

}  // namespace

Cause cause_of(const Job& job, const event::RankExited& exit) {
    Cause cause = cause_of(exit);
    // Slurm hides the GPUs of a node from jobs that ask for none.
    const bool without = says_any(exit.error, kNoGpu) || says_any(exit.error, kOldOrNoDriver);
    if (without && job.spec.resources.gpus_per_node == 0) {
        cause.message += " (the job asks for no GPU: resources.gpus_per_node, lockstep run -G)";
    } else {
        cause.message += hint_of_node(exit);
    }
    return cause;
}

}  // namespace lockstep
