// What the test of a node's GPUs (preflight.gpu_test) has found: lockstep-gpu-test computes on each
// and moves its memory. Judged in preflight_devices.hpp. Pure values and functions; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One GPU. -1: not measured.
struct GpuTestFact {
    std::int32_t gpu = -1;  // its number among those that the job sees there
    std::string uuid;       // "GPU-12345678-…"; "" = not known
    std::string model;      // "NVIDIA H100 80GB HBM3"
    std::string error;      // why it could not be tested to the end; "" = it was
    // Values that are not what they must be; every one is exact.
    std::int64_t gemm_wrong = 0;    // of a product of matrices
    std::int64_t memory_wrong = 0;  // written and read back
    std::int64_t gemm_gflops = -1;  // billions of operations a second
    std::int64_t memory_mbs = -1;   // MB/s, written and read
    std::int64_t copy_mbs = -1;     // MB/s, from host memory to the GPU
    std::int64_t clock_mhz = -1;    // of a multiprocessor, right after the products
};

struct GpuTestFacts {
    bool ran = false;      // false: it was not asked for, or the agent does not know of it
    bool absent = false;   // the program is not installed
    bool skipped = false;  // it cannot be run here, which is no fault of a GPU: see `problem`
    std::string problem;   // why not all GPUs were tested, in words; "" = they were
    std::vector<GpuTestFact> gpus;
};

Json to_json(const GpuTestFacts& facts);
// Of the object that to_json() makes; what is wrong in it is added to `errors`. What it does not
// know it ignores.
GpuTestFacts read_gpu_test(const Json& json, std::vector<FieldError>& errors);

// What lockstep-gpu-test says, a line for each GPU (job/gpu_test/gpu_test.cu). It may have been
// killed in the middle: what is missing then is no error, nor is a last line without its end.
// invalid: anything else that it would not say.
struct GpuTestAnswer {
    std::int32_t gpus = -1;  // that it wanted to test; -1: it did not come so far
    std::vector<GpuTestFact> tested;
    std::string error;      // why it tested none
    std::int32_t code = 0;  // … as a cudaError_t; 0: there is no GPU
};
Result<GpuTestAnswer> parse_gpu_test_answer(std::string_view lines);

}  // namespace lockstep
