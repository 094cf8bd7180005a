// Runs lockstep-gpu-test on this node's GPUs: what it is started with, and what is made of its end.
// Pure functions; any thread.
#pragma once

#include "job/async/subprocess.hpp"
#include "job/base/result.hpp"
#include "job/model/preflight/gpu_test.hpp"

#include <string>
#include <vector>

namespace lockstep {

// It is over within limits::kGpuTestTimeout or killed, and given up soon after that: a driver that
// hangs keeps it in the kernel. `environment`: says which GPUs the job sees (CUDA_VISIBLE_DEVICES).
ProcessCommand gpu_test_command(const std::string& program, std::vector<std::string> environment);

// What it had said before its end is taken in any case; of the GPUs that it was silent about each
// is named.
GpuTestFacts gpu_test_facts(const Result<ProcessResult>& result);

}  // namespace lockstep
