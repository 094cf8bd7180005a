// Whether a GPU of the job is to blame for what its ranks did: an error of its own (gpu_error.hpp)
// that its node's agent has told in the same generation, from 60 s before to 5 s after a rank
// failed there, or one elsewhere that lost its peer there (after XID 79 whenever). The node is lost
// then, so that a spare takes its place and other attempts go without it: on the same GPU the next
// generation would fail too. Where the job could not go on without the node (nothing takes its
// place, or it does not recover from lost nodes) the cause names the GPU and nothing is lost: what
// is done is what is done for the rank that failed. The two may be heard in either order. Control
// thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "job/model/event.hpp"

#include <cstdint>

namespace lockstep {

// The end of this rank of the newest generation was added.
void look_for_gpu_error(Draft& draft, const AttemptRun& run, std::int32_t rank);
// The error was added. One after which nothing on the GPU can go on ends the generation at once, if
// the job can go on without the node: its ranks may wait for ever.
void gpu_error_seen(Draft& draft, const AttemptRun& run, const event::GpuXid& xid);

}  // namespace lockstep
