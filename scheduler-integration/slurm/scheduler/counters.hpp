// What a SlurmScheduler has counted, for the daemon's metrics. Control thread.
#pragma once

#include "job/base/clock.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace lockstep {

// For the daemon's metrics. Counted since the start, but for what is of now, or the last.
struct SlurmCounters {
    std::uint64_t polls = 0;
    std::uint64_t polls_failed = 0;
    std::uint64_t submitted = 0;
    std::uint64_t refused = 0;
    std::uint64_t unclear = 0;    // submissions of unknown outcome
    std::uint64_t adopted = 0;    // found by name after an unknown outcome
    std::uint64_t forgotten = 0;  // acknowledged by Slurm, then not there
    std::uint64_t surplus = 0;    // copies of an attempt that were cancelled
    std::uint64_t malformed = 0;  // rows that did not parse
    std::uint64_t attempts = 0;   // followed now
    std::uint64_t sending = 0;    // submissions in flight now
    // Jobs of attempts that have ended and that Slurm still holds, at the last query.
    std::uint64_t leftovers = 0;
    std::uint64_t leftovers_cancelled = 0;
    bool reachable = false;
    double last_poll_seconds = 0;  // how long the last query took
    UnixMillis last_success = 0;   // of a query; 0 = none yet
    // Of what waits now, by Slurm's word for why; at most limits::kWaitReasons and "other".
    std::map<std::string, std::uint64_t> pending_reasons{};
    // That Slurm has not ended, by partition (the same bound) and Slurm's word for the state.
    using PartitionAndState = std::pair<std::string, std::string>;
    std::map<PartitionAndState, std::uint64_t> jobs{};

    // The bounds are of words, not of jobs: what has no place any more counts as "other".
    void count_reason(std::string reason, std::uint64_t how_many);
    void count_jobs(PartitionAndState where, std::uint64_t how_many);
};

// Counts anew what is in Slurm and why jobs wait there. `waited` (may be empty) is called once for
// each allocation that has started since `begun` (Unix milliseconds), which is noted in its
// attempt.
void measure_waits(SlurmCounters& counters, const SlurmTrackedMap& tracked, UnixMillis begun,
                   const std::function<void(const std::string& partition, double seconds)>& waited);

}  // namespace lockstep
