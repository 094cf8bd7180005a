// The pre-flight's test of two nodes (job/model/preflight/pair_outcome.hpp), as one of them runs
// it: a matrix product some times over, and an exchange of data with the other one over Gloo. Both
// end together, so both say the time of the slower one. On the CPU, as everything that this trainer
// does. Blocking; one thread; ends within the time that is given.
#pragma once

#include "job/base/result.hpp"
#include "job/model/preflight/pair_outcome.hpp"

#include <chrono>
#include <cstdint>

namespace lockstep {

// Milliseconds, without the time until both had met. timed_out, unavailable: the other one did not
// come, or was lost.
Result<std::int64_t> measure_pair(const PairTask& task, std::chrono::milliseconds patience);

}  // namespace lockstep
