// Who is to blame where every failure of a generation is an echo (failure.hpp): none of those that
// failed, but the rank that they waited for, if there is evidence of which. Pure; any thread.
#pragma once

#include "job/model/job.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

// The ranks that a failed wait itself names as missing, in its order: of lockstep.barrier(), whose
// words are KvStore's, and of torch's monitored_barrier().
std::vector<std::int32_t> named_missing(std::string_view error);

// `first`, the first failure of `generation` (the job's newest), as the cause. Of an echo the cause
// is, in this order: who it names as missing; a rank that had left with 0 before; the one that was
// stopped at an earlier step than all others that were stopped. With none of these it says that the
// first cause is not known, and blames nobody.
Cause first_cause(const Job& job, const Generation& generation, const Cause& first);

}  // namespace lockstep
