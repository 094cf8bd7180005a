// The pre-flight of an attempt's nodes: PROBE, the test in pairs, and what is made of the answers.
// The rules are preflight_state.hpp's, pair_state.hpp's and job/model's; here they get their
// messages and events. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "job/model/wire/wire.hpp"

namespace lockstep {

// An agent's answers. False: it was not understood, and is fenced.
bool checked(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Checked& checked);
bool probed(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Probed& probed);
bool pair_tested(Draft& draft, AttemptRun& run, const AgentPtr& link,
                 const wire::PairTested& tested);
// To be called with everything that may have moved it, and from time to time: it has deadlines.
void look_at_preflight(Draft& draft, AttemptRun& run);

}  // namespace lockstep
