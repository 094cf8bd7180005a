// One node's part of the pre-flight's test with NCCL: it meets the other node's program, both tell
// each other what they have, and every GPU of both becomes a rank.
#pragma once

#include "job/model/preflight/nccl_test.hpp"
#include "job/model/preflight/pair_outcome.hpp"

#include <chrono>
#include <functional>
#include <string>

namespace lockstep {

struct NcclPairEnd {
    NcclTestFact fact;  // of the end, if `error` is empty
    double bus_bytes_per_second = 0;
    double latency_seconds = 0;
    std::string error;
};
// Something that happened before the end: members of a line of nccl_test.hpp.
using TellNccl = std::function<void(Json line)>;

// Blocks, about as long as `patience` at most; once in a process. `tell`: any thread. Communicators
// are left to the end of the process, which may not wait for them.
NcclPairEnd run_nccl_pair(const PairTask& task, std::chrono::milliseconds patience,
                          const TellNccl& tell);

}  // namespace lockstep
