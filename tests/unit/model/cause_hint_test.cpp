// What is said beside a rank's error of a driver, a GPU or a library that does not fit.
#include "job/model/job.hpp"
#include "job/model/job_view.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

// What a cause adds to rank 2's exception on n1, in a job that asks for GPUs.
std::string hint_on_gpus(const std::string& error, const std::string& log_tail = "") {
    History h{R"({"name":"t","framework":"command","command":["x"],
                  "resources":{"nodes":2,"ranks_per_node":2,"gpus_per_node":2}})"};
    h.running();
    auto exit = h.exit(2, 1, 4500);
    exit.error_type = "RuntimeError";
    exit.error = error;
    exit.log_tail = log_tail;
    h.must(exit);
    const std::string message = due(h.job, h.now).cause.message;
    const std::string bare = cause_of(exit).message;
    EXPECT_TRUE(message.starts_with(bare)) << message;
    return message.substr(bare.size());
}

const char* const kTorchsOldDriver =
    "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU "
    "driver by downloading and installing a new version from the URL: "
    "http://www.nvidia.com/Download/index.aspx Alternatively, go to: https://pytorch.org to "
    "install a PyTorch version that has been compiled with your version of the CUDA driver.";

TEST(CauseHint, ADriverThatIsTooOldIsNamedWithItsNodeAndItsCuda) {
    const std::string rest =
        " is older than the framework's CUDA needs: take nodes with a newer driver, or a module or "
        "wheel that was built for an older CUDA)";
    EXPECT_EQ(hint_on_gpus(kTorchsOldDriver),
              " (the NVIDIA driver of n1, which knows CUDA 12.2," + rest);
    EXPECT_EQ(hint_on_gpus("INTERNAL: Failed to load PTX: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the "
                           "provided PTX was compiled with an unsupported toolchain."),  // XLA
              " (the NVIDIA driver of n1" + rest);
}

// CUDA's runtime says the same where it finds no driver at all.
TEST(CauseHint, OfADriverThatMayNotBeThereItIsNotSaidThatItIsOld) {
    const std::string hint =
        " (n1 has no NVIDIA driver, or the container was not given it, or it is older than the "
        "framework's CUDA needs)";
    for (const char* said :
         {// torch
          "CUDA error: CUDA driver version is insufficient for CUDA runtime version\nCUDA kernel "
          "errors might be asynchronously reported at some other API call",
          // Paddle
          "(External) CUDA error(35), CUDA driver version is insufficient for CUDA runtime "
          "version. \n  [Hint: 'cudaErrorInsufficientDriver'.",
          // TensorFlow
          "cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime "
          "version",
          // NCCL 2.18 below torch
          "NCCL error in: ../c10d/NCCLUtils.hpp:268, unhandled cuda error (run with "
          "NCCL_DEBUG=INFO for details), NCCL version 2.18.6\nncclUnhandledCudaError: Call to "
          "CUDA function failed.\nLast error:\nCuda failure 35 'CUDA driver version is "
          "insufficient for CUDA runtime version'"}) {
        EXPECT_EQ(hint_on_gpus(said), hint) << said;
    }
}

// Where a script asks torch.cuda.is_available() first, it is a warning that says why.
TEST(CauseHint, ADriverThatWasOnlyWarnedOfIsFoundInTheOutput) {
    const std::string warned = "torch/cuda/__init__.py:174: UserWarning: CUDA initialization: " +
                               std::string{kTorchsOldDriver} +
                               " (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)";
    EXPECT_NE(hint_on_gpus("No CUDA GPUs are available", warned).find("knows CUDA 12.2"),
              std::string::npos);
    EXPECT_EQ(hint_on_gpus("No CUDA GPUs are available"), "");
    EXPECT_EQ(hint_on_gpus("label 17 out of range", warned), "") << "another error";
}

TEST(CauseHint, AGpuThatTheFrameworkWasNotBuiltForIsNamed) {
    for (const char* said :
         {"CUDA error: no kernel image is available for execution on the device\nCUDA kernel "
          "errors might be asynchronously reported at some other API call",
          "(External) CUDA error(209), no kernel image is available for execution on the device.",
          "INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image "
          "is available for execution on the device",
          "CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is "
          "invalid"}) {
        EXPECT_EQ(hint_on_gpus(said),
                  " (the framework was not built for the GPUs of n1, which are newer or older than "
                  "those it knows: take another wheel or module, or other GPUs by "
                  "slurm.constraint)")
            << said;
    }
}

TEST(CauseHint, ALibraryThatDoesNotLoadIsNamed) {
    for (const char* library :
         {"libcudart.so.12", "libnccl.so.2", "libcudnn.so.9", "libcublas.so.12"}) {
        const std::string said =
            std::string{library} + ": cannot open shared object file: No such file or directory";
        EXPECT_EQ(hint_on_gpus(said),
                  std::string{" (the node does not have "} + library +
                      ", or not where the loader looks: load the module of the CUDA that the "
                      "framework was built for, install its wheel, or set LD_LIBRARY_PATH)");
        EXPECT_EQ(hint_on_gpus("/opt/x/" + said), hint_on_gpus(said));
    }
    const std::string driver =
        hint_on_gpus("libcuda.so.1: cannot open shared object file: No such file or directory");
    EXPECT_NE(driver.find("comes with NVIDIA's driver: the node has none"), std::string::npos)
        << driver;
    EXPECT_EQ(
        hint_on_gpus("libfoo.so.1: cannot open shared object file: No such file or directory"), "");
    const std::string older =
        hint_on_gpus("/v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister");
    EXPECT_TRUE(older.starts_with(" (an older NCCL was loaded than")) << older;
}

TEST(CauseHint, WhatNcclDoesNotSayOfCudaIsAskedFor) {
    const std::string bare =
        "NCCL error in: ../c10d/NCCLUtils.hpp:268, unhandled cuda error (run with NCCL_DEBUG=INFO "
        "for details), NCCL version 2.18.6\nncclUnhandledCudaError: Call to CUDA function failed.";
    EXPECT_NE(hint_on_gpus(bare).find("NCCL_DEBUG=WARN"), std::string::npos);
    EXPECT_EQ(hint_on_gpus(bare + "\nLast error:\nCuda failure 2 'out of memory'"), "");
}

TEST(CauseHint, AJobWithoutGpusIsToldOfThatAlone) {
    History h;
    h.running();
    auto exit = h.exit(2, 1, 4500);
    exit.error_type = "RuntimeError";
    exit.log_tail = kTorchsOldDriver;
    for (const char* said :
         {"Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",
          "INTERNAL: no supported devices found for platform CUDA"}) {
        exit.error = said;
        EXPECT_EQ(cause_of(h.job, exit).message,
                  cause_of(exit).message +
                      " (the job asks for no GPU: resources.gpus_per_node, lockstep run -G)");
    }
}

}  // namespace
}  // namespace lockstep
