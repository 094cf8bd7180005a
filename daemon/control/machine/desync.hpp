// A rank that the others wait for in NCCL, as its agent has seen in NCCL's RAS (wire::Desync). It
// is told as an anomaly and ends nothing; a hang, or the end of those that waited, is laid to its
// charge as long as it stands (hang_words.hpp, job.cpp). Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "job/model/wire/wire.hpp"

namespace lockstep {

// Of the live generation, from the agent of its rank 0, which alone asks NCCL; what changes is
// told. Ranks that have waited for less than two of the job's steps may do so in every step: not
// told yet. A rank that has ended is known by its end.
void desync_seen(Draft& draft, AttemptRun& run, const Agent& link, const wire::Desync& seen);

// Steps that the others have made since say that nobody waits any more, where the agent cannot:
// NCCL's RAS may be gone, or have lost the rank for good.
void desync_outlived(Draft& draft, GenerationRun& run);

// Whether the rank says that it evaluates, saves or prepares (op "phase"): the others may wait for
// that. `series`: null as long as nobody has reported anything.
bool is_busy(const telemetry::JobSeries* series, std::int32_t rank);

}  // namespace lockstep
