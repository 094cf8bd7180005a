// Jobs that Slurm still holds although their attempts have ended: a slurmctld that was killed in
// the seconds around a job's end comes back with the job RUNNING, which is no longer followed,
// in this daemon's life or a later one's. They are found by name in the answer that is there
// anyway, and cancelled. Control thread; lives as long as the scheduler.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/clock.hpp"
#include "scheduler-integration/scheduler.hpp"
#include "scheduler-integration/slurm/scheduler/counters.hpp"
#include "scheduler-integration/slurm/scheduler/options.hpp"
#include "scheduler-integration/slurm/scheduler/pace.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

class SlurmLeftovers {
  public:
    // All must outlive it.
    SlurmLeftovers(const Clock& clock, SlurmBackend& backend, const SlurmSchedulerOptions& options,
                   SlurmPace& pace, SlurmCounters& counters)
        : clock_(clock), backend_(backend), options_(options), pace_(pace), counters_(counters) {}

    // Who knows which attempts have ended; before that nothing is looked for.
    void know_ends(Scheduler::EndOf end_of) { end_of_ = std::move(end_of); }
    bool looks() const { return static_cast<bool>(end_of_); }
    bool one_waits() const;  // that has not been cancelled yet: it is looked at soon
    // What cannot be cancelled is logged, and tried again at a later answer.
    Task<void> audit(const JobTable& table, const SlurmTrackedMap& tracked);

  private:
    // A job in Slurm with one of our names that is no longer followed.
    struct Leftover {
        std::string name;
        UnixMillis ended_at = 0;  // the attempt; 0: not known, or it goes on
        bool foreign = false;     // no attempt of ours: another lockstepd's of the same user
        std::optional<SteadyTime> cancelled;
    };

    const Clock& clock_;
    SlurmBackend& backend_;
    const SlurmSchedulerOptions& options_;
    SlurmPace& pace_;
    SlurmCounters& counters_;
    Scheduler::EndOf end_of_;
    std::map<std::int64_t, Leftover> leftovers_;  // by Slurm's number
};

}  // namespace lockstep
