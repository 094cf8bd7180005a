// Runs lockstep-nccl-test as this node's part of the test with NCCL: what it is started with, and
// what is made of its end. Pure functions; any thread.
#pragma once

#include "job/async/subprocess.hpp"
#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/preflight/pair_outcome.hpp"

#include <map>
#include <string>

namespace lockstep {

// It is over within limits::kNcclTestTimeout or killed, and given up soon after that: a driver that
// hangs keeps it in the kernel. `environment`: what the job's ranks would have, so that the
// library, the GPUs and the interfaces (LD_LIBRARY_PATH, CUDA_VISIBLE_DEVICES, NCCL_*) are theirs.
ProcessCommand nccl_test_command(const std::string& program,
                                 const std::map<std::string, std::string>& environment,
                                 const Json& task);

// A program that was killed, or died of a signal, is to blame itself: what other nodes do it
// notices and says.
PairOutcome nccl_test_outcome(const Result<ProcessResult>& result);

}  // namespace lockstep
