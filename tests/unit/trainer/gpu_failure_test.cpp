// The words of a job's cause where LibTorch fails on a GPU; no GPU is needed.
#include "job/trainer/device.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

GpuWork large_batch() {
    return {.gpu = "NVIDIA H100 80GB HBM3, 79 GiB", .batch_size = 16384};
}

TEST(GpuFailure, ABatchThatDoesNotFitIsNamedWithItsSizes) {
    // torch 2.15
    const std::string now =
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB "
        "of which 1.06 GiB is free. Including non-PyTorch memory, this process has 78.05 GiB "
        "memory in use. Of the allocated memory 77.12 GiB is allocated by PyTorch, and 310.50 MiB "
        "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
    const Error error = gpu_failure(now, large_batch());
    EXPECT_EQ(error.code, Errc::exhausted);
    EXPECT_EQ(error.message,
              "a batch_size of 16384 does not fit on NVIDIA H100 80GB HBM3, 79 GiB "
              "(train.find_batch_size finds one that does): CUDA out of memory. Tried to allocate "
              "2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.06 GiB is free");
    EXPECT_LE(error.message.size(), 300U) << "a cause has no more of it";
    // torch 1.13
    EXPECT_EQ(gpu_failure("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.11 GiB total "
                          "capacity; 77.12 GiB already allocated; 1.06 GiB free; 77.42 GiB "
                          "reserved in total by PyTorch) If reserved memory is >> allocated memory "
                          "try setting max_split_size_mb to avoid fragmentation.",
                          large_batch())
                  .message,
              "a batch_size of 16384 does not fit on NVIDIA H100 80GB HBM3, 79 GiB "
              "(train.find_batch_size finds one that does): CUDA out of memory. Tried to allocate "
              "20.00 MiB (GPU 0; 79.11 GiB total capacity; 77.12 GiB already allocated; 1.06 GiB "
              "free; 77.42 GiB reserved in total by PyTorch)");
}

TEST(GpuFailure, WhoFindsItsBatchSizeIsNotToldTo) {
    GpuWork work = large_batch();
    work.finds_batch_size = true;
    EXPECT_EQ(gpu_failure("CUDA error: out of memory\nCUDA kernel errors might be reported", work)
                  .message,
              "a batch_size of 16384 does not fit on NVIDIA H100 80GB HBM3, 79 GiB: CUDA error: "
              "out of memory");
}

TEST(GpuFailure, AnyOtherErrorHasItsFirstLineAndTheGpu) {
    const Error error = gpu_failure(
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be "
        "asynchronously reported; out of memory is not what this is",
        large_batch());
    EXPECT_EQ(error.code, Errc::internal);
    EXPECT_EQ(error.message,
              "NVIDIA H100 80GB HBM3, 79 GiB: CUDA error: an illegal memory access was "
              "encountered");
}

}  // namespace
}  // namespace lockstep
