// Whose doing an end was, as far as the scheduler can tell: its word goes before what the ranks
// saw. Functions of what they are given; control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "job/model/job.hpp"
#include "scheduler-integration/observation.hpp"

namespace lockstep {

// Whether somebody outside may have ended the ranks: then the scheduler knows why, and the ranks
// only that a signal came.
bool wants_verdict(const Job& job);
void add_verdict(Draft& draft, const AttemptRun& run, const Observation& seen);
// The allocation is over for the scheduler, and agents are heard all the same.
void look_at_outlived(Draft& draft, AttemptRun& run, const Observation& seen);

}  // namespace lockstep
