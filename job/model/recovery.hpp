// What to do about a failure: start the ranks again where they are, ask for other nodes, or end.
// Pure functions of the job; any thread.
//
//   a rank, a hang      → another generation in the same allocation, ≤ max_restarts of them
//   a loss that is NaN  → the same, with on_nonfinite_loss restart
//   a node              → the same if enough nodes are left (spares, min_nodes), else another
//                         attempt
//   a node that is back → another generation with it, without being counted (elastic jobs)
//   preempted, time     → another attempt, ≤ max_attempts of them
//   a person's restart  → another generation, without being counted
//
// Whatever the spec says of recovery, an allocation that the scheduler took away before any rank of
// the attempt had been started is asked for again, kUnstarted times: nothing can have run twice.
// So is, without being counted, one whose agents have all ended while no daemon was there that they
// could have called in to (event::FaultSeen, unwatched), kUnwatched times: a daemon that dies with
// its agents again and again begins attempts with an end.
//
// Three generations in a row that ended within kSameStep steps of each other are a crash loop:
// another one would end there, too. Not every number of a step can be compared: a script may report
// none, or print losses without one, which are counted from 0 in each generation. So what began at
// a newer checkpoint and ended at a number below that of it has gone on, and generations of
// kLongGeneration or more are compared only if they are known to have begun at one checkpoint.
#pragma once

#include "job/model/job.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class Recovery : std::uint8_t {
    none,        // the job ends; `why` says why it is not recovered from, "" = recovery is off
    generation,  // in this allocation
    attempt,     // in another one
};

struct RecoveryPlan {
    Recovery kind = Recovery::none;
    std::string why;  // none only; continues a sentence that names the failure
};

inline constexpr std::int32_t kCrashLoop = 3;  // generations
inline constexpr std::int64_t kSameStep = 2;   // which rank's report came last is chance

inline constexpr UnixMillis kLongGeneration = 1'800'000;  // ms

inline constexpr std::int32_t kUnstarted = 3;  // attempts
inline constexpr std::int32_t kUnwatched = 16;

// What the spec calls the failure; nothing: it is not to be recovered from.
std::optional<RecoveryTrigger> trigger_of(CauseClass cause);

// Why what runs must stop, if it must: a rank or a node failed, the attempt is at fault, a crash
// loop, a cancel, a restart that was asked for.
std::optional<Cause> reason_to_stop(const Job& job);

// What follows from it. `reason`: of reason_to_stop().
RecoveryPlan plan_recovery(const Job& job, const Cause& reason);

// What is due for it, of an attempt that has not ended: the ranks are started again, another
// attempt follows, or the job ends; for a moment nothing, while only echoes of a failure were
// heard. Nothing: nothing must stop.
std::optional<Action> answer_to_failure(const Job& job, const Waited& waited);

// No rank of the attempt can have run, however its nodes ended.
bool unstarted(const Attempt& attempt);
// Generations that ended by a failure and were followed by another, over all attempts.
std::int32_t restarts_used(const Job& job);
// The newest kCrashLoop generations of the attempt ended alike.
bool crash_loop(const Attempt& attempt);
// Nodes of the allocation that are not lost and, once there was a generation, have called in.
std::int32_t usable_nodes(const Job& job);
// Names of the nodes that other attempts are to go without.
std::vector<std::string> nodes_to_exclude(const Job& job);

}  // namespace lockstep
