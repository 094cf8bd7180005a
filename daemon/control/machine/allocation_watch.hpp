// What the scheduler says of an allocation in which nodes gather or ranks run: that it has
// suspended it, will end it soon, has ended it. A part of what is known of an attempt (AttemptRun).
// Value; control thread only.
#pragma once

#include "daemon/control/machine/pending_reason.hpp"
#include "scheduler-integration/observation.hpp"

namespace lockstep {

class Draft;
struct AttemptRun;

class AllocationWatch {
  public:
    // Whether the job is suspended, which becomes an event: then nobody's silence counts, and as
    // long as it is, all that agents and ranks are given time for begins anew. `run`: what this is
    // a part of. `pending`: why the job waits, for as long as this is why.
    bool look_whether_paused(Draft& draft, AttemptRun& run, PendingReason& pending,
                             const Observation& seen);
    // Whether it has ended or soon will, for over() and `pending`.
    void look_whether_ending(PendingReason& pending, const Observation& seen);
    // As look_whether_ending() last found.
    bool over() const { return was_over_; }

  private:
    bool was_paused_ = false;  // when it was last asked
    bool was_ending_ = false;  // by Observation::ending
    bool was_over_ = false;
};

}  // namespace lockstep
