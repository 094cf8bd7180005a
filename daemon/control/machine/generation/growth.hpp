// Elastic jobs (resources.min_nodes): generations of fewer nodes than are wanted, and when the
// ranks are started again because there are more. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/save_round.hpp"

#include <cstdint>
#include <vector>

namespace lockstep {

// Fewer nodes than are wanted, `members` (slots), could begin; whether more are on their way.
bool waits_for_more(const Draft& draft, const AttemptRun& run,
                    const std::vector<std::int32_t>& members);
// A larger generation costs a restart, so it comes when that loses the least: right after a
// checkpoint, which the ranks are asked for (`saving`) if all of them catch the signal. Some say
// nothing of their checkpoints; after grow_after_seconds nobody waits any more. A generation that
// has begun to end is left alone.
void look_at_growth(Draft& draft, AttemptRun& run, SaveRound& saving);

}  // namespace lockstep
