// Where a job runs: the one interface to local processes, sbatch and slurmrestd. Observations are
// three-valued: a state, absent, or unreachable; silence never ends a job.
// Called from the control thread only. A driver owns what it starts, not the job: the job's truth
// is in the store. Every call may be repeated after a crash: submit() of an attempt that the
// scheduler already has adopts it, adopt() does only that.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"
#include "job/model/placement.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class AllocationState {
    pending,  // the scheduler has it; `reason` says in plain words why it waits
    running,  // allocated; agents were started on `nodes`
    ended,    // over; `message` says how
};

struct Observation {
    enum class Kind { state, absent, unreachable };
    Kind kind = Kind::unreachable;
    AllocationState state = AllocationState::pending;
    std::string reason;              // pending only
    std::vector<std::string> nodes;  // running only, by node rank
    // ended only: per node rank whether its agent is known to have ended without a result
    std::vector<std::int32_t> lost_nodes;
    std::string message;
};

struct Admission {
    std::vector<std::string> warnings;  // the job will run, but the user should know
};

class Scheduler {
  public:
    virtual ~Scheduler() = default;
    // "local", "slurm", "slurmrestd".
    virtual std::string_view name() const = 0;
    // Refuses what can never run here: invalid, with the pointer of the field to change.
    virtual Result<Admission> admit(const JobSpec& spec) const = 0;
    // Hands the attempt over; idempotent per (job, attempt). Returns the scheduler's id for it.
    virtual Task<Result<std::string>> submit(AttemptRequest request) = 0;
    // Takes up an attempt that an earlier daemon handed over, and starts nothing: for one that is
    // to end. False: the scheduler has nothing of it. unavailable: it does not answer.
    virtual Task<Result<bool>> adopt(AttemptRequest request) = 0;
    // By (job, attempt), not by id: an id may never have reached us.
    virtual Task<Observation> poll(JobId job, std::int32_t attempt) = 0;
    // Asks the allocation to end, by force if it must. Absent is success.
    virtual Task<Status> cancel(JobId job, std::int32_t attempt) = 0;
    // Whether it answers at the moment; for /readyz.
    virtual Task<Status> ping() = 0;
};

}  // namespace lockstep
