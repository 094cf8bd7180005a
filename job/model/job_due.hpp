// What a job needs next, for a daemon that may have been started again meanwhile. Pure.
#pragma once

#include "job/base/clock.hpp"
#include "job/model/job.hpp"

namespace lockstep {

// As due(job, now), but nodes have the whole of limits::kGatherTimeout from `since` on to call in
// and to meet: they could not before, while no lockstepd was there to hear them.
Action due(const Job& job, UnixMillis now, UnixMillis since);

}  // namespace lockstep
