// What the agents of the live generation are told of it: WORLD, and TABLE of a large one. Functions
// of the job and of what is known of its agents, of which they change nothing. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/effect.hpp"
#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <vector>

namespace lockstep {

// WORLD to its nodes, `slots` by node rank, as far as they are connected.
void send_world(Effects& out, const Job& job, const AttemptRun& run,
                const std::vector<std::int32_t>& slots);
// The same to one that had not heard of it; nothing if that has no part in it, or it is being
// ended.
void send_world_again(Effects& out, const Job& job, const AttemptRun& run, const AgentPtr& link);
// False: it is not of the live generation that TABLE is asked for, or that has none.
bool send_table(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                const wire::TableRequest& request);

}  // namespace lockstep
