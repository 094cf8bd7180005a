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

// The test is not over some seconds after its patience: a call into NCCL or the driver does not
// come back. What is known by then.
using NcclOverdue = std::function<void(const NcclPairEnd& end)>;

// Blocks; once in a process. Waits for the other node no longer than `patience`; `overdue` is
// called by a thread of its own 6 s after that, whether or not the test is over. `tell`: any
// thread. Both, and `task`, must outlive the process: what it has made is left to its end, which
// may not wait for it.
NcclPairEnd run_nccl_pair(const PairTask& task, std::chrono::milliseconds patience,
                          const TellNccl& tell, const NcclOverdue& overdue);

}  // namespace lockstep
