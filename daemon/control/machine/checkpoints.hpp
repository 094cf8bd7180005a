// Events of the checkpoints that ranks have written, and of those that they are asked for when
// their time limit is near; not each of many becomes one. The newest is kept with the attempt
// (AttemptRun::checkpoint); asking for one on command is SaveRound's. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "job/model/wire/wire.hpp"

namespace lockstep {

void checkpoint_saved(Draft& draft, AttemptRun& run, const AgentPtr& link,
                      const wire::CheckpointSaved& saved);
// The newest checkpoint becomes an event: at once, or, of a generation that has many, once in a
// while and with its end (`last`). Ranks find theirs by themselves; what a crash of the daemon may
// cost is what is said of the last minute's.
void tell_checkpoint(Draft& draft, const AttemptRun& run, bool last);
// An agent has asked its ranks for one, since their time is nearly over.
void save_asked(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                const wire::SaveAsked& asked);
// That is durable. `deaf`: it names a rank.
void time_limit_told(AttemptRun& run, bool deaf);

}  // namespace lockstep
