#include "daemon/control/machine/allocation_watch.hpp"

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
namespace {

// As long as the scheduler is not heard it stays as it was.
void note_suspension(Draft& draft, const Observation& seen) {
    const Attempt& attempt = *draft.job().attempt();
    // Nor does one that has just been taken up, and is not seen yet, go on.
    if (seen.kind != Observation::Kind::state || seen.state != AllocationState::running ||
        seen.paused == attempt.suspended() ||
        (seen.paused && attempt.suspensions.size() >= limits::kSuspensions)) {
        return;
    }
    event::Suspended out;
    out.attempt = attempt.number;
    out.over = !seen.paused;
    out.message = seen.paused ? seen.message : "it is not suspended any more";
    draft.add(std::move(out));
}

}  // namespace

bool AllocationWatch::look_whether_paused(Draft& draft, AttemptRun& run, PendingReason& pending,
                                          const Observation& seen) {
    const bool paused = seen.kind == Observation::Kind::state && seen.paused;
    note_suspension(draft, seen);
    if (paused || was_paused_) {
        pending.set(paused ? seen.message : "");
        run.restart_silence_timers(draft.at.steady);  // agents that stand still say nothing
        was_paused_ = paused;
        // Nor do ranks that stand still end: their time to do so begins anew.
        if (run.generation.abort_sent) {
            run.generation.abort_sent = draft.at.steady;
        }
        for (const auto& [slot, link] : run.links) {
            if (link->abort_sent) {
                link->abort_sent = draft.at.steady;
            }
        }
    }
    return paused;
}

void AllocationWatch::look_whether_ending(PendingReason& pending, const Observation& seen) {
    const bool ending = seen.kind == Observation::Kind::state && !seen.ending.empty();
    if (ending || was_ending_) {
        pending.set(ending ? seen.message : "");
        was_ending_ = ending;
    }
    was_over_ = allocation_ended(seen);
}

}  // namespace lockstep
