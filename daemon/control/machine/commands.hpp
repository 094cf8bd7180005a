// What people want of a job, and what becomes of one whose predecessor has not succeeded: as
// events, and with an answer once these are durable. A checkpoint is SaveRound's to ask for.
// Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/job_input.hpp"
#include "daemon/control/machine/save_round.hpp"

namespace lockstep {

void cancel(Draft& draft, const CancelInput& input);
// `saving`: knows the keys of checkpoints that are being asked for.
void restart(Draft& draft, const SaveRound& saving, const RestartInput& input);
void look_at_ranks(Draft& draft, AttemptRun& run, const EvidenceInput& input);
void profile(Draft& draft, AttemptRun& run, ProfileInput& input);
void dependency_failed(Draft& draft, const DependencyInput& input);

}  // namespace lockstep
