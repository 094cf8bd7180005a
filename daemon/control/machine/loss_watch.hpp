// Which nodes of a job are lost, what those that cannot be asked any more have left behind, and
// what becomes of their agents: the fault is added to a draft; once that is durable the agent is
// let go, and its HELLO is refused from then on. Control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/left_behind.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"
#include "scheduler-integration/observation.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// Completes and adds the fault of a node that is not to be used any more.
void lose_node(Draft& draft, std::int32_t slot, event::FaultSeen fault);
// Why its agent is not taken any more; "" if it is not lost, or may come back.
std::string why_given_up(const Attempt& attempt, std::int32_t slot);
// The loss is durable: the node does not count, and its agent is fenced, or may call in again.
void let_go(Effects& out, const Job& job, AttemptRun& run, const after::GiveUp& lost);

class LossWatch {
  public:
    // `files` outlives it.
    explicit LossWatch(const LeftBehind& files) : files_(files) {}

    // A walk over all nodes: those whose agents have been silent for too long.
    void note_silent(Draft& draft, AttemptRun& run, const Observation& seen);
    // Those that the scheduler says are lost, and results of ranks whose agents are gone.
    void read_results(Draft& draft, const AttemptRun& run, const Observation& seen) const;
    // Those that were sent ABORT, and whose ranks do not end.
    static void lose_stuck(Draft& draft, const AttemptRun& run);

  private:
    // The logs of all nodes are read for it: once, however many are lost at a time.
    struct MemoryWords {
        bool asked = false;
        std::optional<MemoryEvidence> found{};
    };
    // False: whether it has left one cannot be seen now.
    bool read_result_of(Draft& draft, std::int32_t slot) const;
    event::FaultSeen how_it_was_lost(const Job& job, std::int32_t slot, const Observation& seen,
                                     MemoryWords& memory) const;
    void blame_memory(const Job& job, event::FaultSeen& fault, MemoryWords& memory) const;

    const LeftBehind& files_;
    std::optional<std::chrono::steady_clock::time_point> looked_;  // Surroundings::timers
};

}  // namespace lockstep
