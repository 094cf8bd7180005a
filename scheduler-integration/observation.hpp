// What a scheduler says of an attempt's allocation. Three-valued: a state, absent, or unreachable;
// silence never ends a job. Values; any thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/model/event.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class AllocationState {
    pending,  // the scheduler has it; `reason` says in plain words why it waits
    running,  // allocated; agents were started on `nodes`
    ended,    // over; `message` and `cause` say how
};

struct Observation {
    enum class Kind { state, absent, unreachable };
    Kind kind = Kind::unreachable;
    AllocationState state = AllocationState::pending;
    std::string reason;  // pending only
    // running and ended: the allocation's nodes by node rank, as far as the scheduler (still) names
    // them
    std::vector<std::string> nodes;
    // ended only: per node rank whether its agent is known to have ended without a result
    std::vector<std::int32_t> lost_nodes;
    std::string message;
    std::string id{};   // the scheduler's own number of it; "" if it has none
    bool held = false;  // pending only: it waits for a person
    // running only: it has its nodes and does not move, agents included; `message` says why
    bool paused = false;
    // running only: it is over but for what the scheduler still has to end on these nodes
    std::string ending{};
    UnixMillis expected_start = 0;  // pending only: as the scheduler estimates; 0 = unknown
    // ended only: why, where the scheduler knows better than the ranks (time limit, preempted, a
    // node that failed, cancelled outside Lockstep); none = it just ended
    Cause cause{};
    // ended only: the cause to use if no rank had been started. A failure of the scheduler's own
    // (`scheduler`) where it ended soon after its start by an unknown author, while `cause` assumes
    // a person; user_error where it would end the same way if it were handed in again.
    std::optional<Cause> accident{};
    // pending only: it waits for a time or for another job, not for nodes
    bool later = false;
    // absent only: the scheduler had it and has lost it; nobody has cancelled it
    bool lost = false;
    // ended only: every agent that it had started had ended before this lockstepd could watch it
    bool ended_unwatched = false;
};

// The allocation has ended, by the scheduler's own word: one that it does not know (any more) or is
// silent about may live.
inline bool allocation_ended(const Observation& seen) {
    return seen.kind == Observation::Kind::state && seen.state == AllocationState::ended;
}

// An agent that its scheduler's own daemons ended because the job had used up its memory.
struct MemoryEvidence {
    std::int32_t node_rank = -1;  // -1: known of the job only
    std::string line{};           // the line of a log that says so, printable
    std::string by{};             // what sentences call that scheduler
};

}  // namespace lockstep
