// What agents tell of their nodes and ranks, as events: how a rank ended, faults, warnings, errors
// of GPUs, that an agent leaves. What they say is cut and cleaned here. It must be the node's agent
// that speaks (JobMachine). Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "job/model/wire/wire.hpp"

namespace lockstep {

void hear_exit(Draft& draft, const AttemptRun& run, const AgentPtr& link,
               const wire::Exited& exited);
void hear_fault(Draft& draft, const AgentPtr& link, const wire::Fault& fault);
void hear_warning(Draft& draft, const AgentPtr& link, const wire::Warned& warned);
void hear_gpu_error(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                    const wire::GpuXid& xid);
// It does not come back; the scheduler, which may have told it to go, is asked why soon. All that
// at once: the end of its connection, which may share the append, is known at once too, and if that
// fails nobody is there any more whose BYE could be heard again.
void hear_bye(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Bye& bye);

}  // namespace lockstep
