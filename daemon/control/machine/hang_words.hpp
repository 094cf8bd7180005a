// A hang in words: who is to blame, by what was asked of the ranks. Pure; any thread.
#pragma once

#include "daemon/control/machine/generation_run.hpp"
#include "daemon/telemetry/series/series.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"

namespace lockstep {

inline constexpr const char* kHangReason = "no rank has made a step";
inline constexpr const char* kStartReason = "no rank has made its first step";

// `job` has a live generation; `series`: nullptr if nothing was reported.
event::FaultSeen hang_fault(const Job& job, const EvidenceRun& evidence,
                            const telemetry::JobSeries* series, UnixMillis wall);
// That it hangs, whether or not it is ended for it. `fault`: of hang_fault().
event::AnomalySeen hang_warning(const Job& job, const EvidenceRun& evidence,
                                const event::FaultSeen& fault);

}  // namespace lockstep
