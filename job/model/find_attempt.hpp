// Attempts of a job by their number. Pure; any thread.
#pragma once

#include "job/model/job.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {

// Into `job`, good until that changes. nullptr: the job has had none of this number.
inline const Attempt* find_attempt(const Job& job, std::int32_t number) {
    const auto found = std::find_if(job.attempts.begin(), job.attempts.end(),
                                    [&](const Attempt& one) { return one.number == number; });
    return found == job.attempts.end() ? nullptr : &*found;
}

}  // namespace lockstep
