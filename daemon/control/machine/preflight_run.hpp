// The pre-flight of an attempt's nodes: PROBE, the test in pairs, and what is made of the answers.
// The rules are preflight_state.hpp's, pair_state.hpp's and job/model's; here they get their
// messages and events. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"

namespace lockstep {

// To be called with everything that may have moved it, and from time to time: it has deadlines.
void look_at_preflight(Draft& draft, AttemptRun& run);

}  // namespace lockstep
