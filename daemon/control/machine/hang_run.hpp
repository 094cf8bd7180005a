// How a hang of the live generation is noticed, told and, where that is wanted, ended; and what the
// ranks are doing, asked of their agents and kept with the job: on a hang before anything is ended,
// or because somebody wants to know. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/hang_watch.hpp"
#include "job/model/wire/wire.hpp"

#include <string>

namespace lockstep {

// EXAMINE to every node of the live generation. `gentle`: only what costs ranks nothing that go on.
void ask_for_evidence(Draft& draft, AttemptRun& run, HangWatch::Verdict verdict, std::string reason,
                      bool hang, bool gentle = false);
void examined(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Examined& examined);
void evidence_saved(Draft& draft, AttemptRun& run, const AgentPtr& link,
                    const wire::EvidenceSaved& saved);
// It is among the events, and durable. `acted_on`: of a hang that is ended.
void evidence_used(AttemptRun& run, bool acted_on);
void look_for_hang(Draft& draft, AttemptRun& run);

}  // namespace lockstep
