// What the parts of a job's driver need of it: its steps, one after the other (job_actor.hpp).
// Called by its coroutine alone; control thread.
#pragma once

#include "daemon/control/machine/job_machine.hpp"
#include "job/async/asio.hpp"

namespace lockstep {

class JobSteps {
  public:
    virtual ~JobSteps() = default;

    // What the machine is told of the world with each call.
    virtual Surroundings now() const = 0;
    // Does what a draft wants at once. By commit(), too; before that, or for one that is not to be
    // stored.
    virtual void prepare(Draft& draft) = 0;
    virtual void perform(Effects effects) = 0;
    // Appends the draft's events and makes it the job. False: the disk is full, its commands have
    // been answered, and it is of no more use.
    virtual Task<bool> commit(Draft& draft) = 0;
    // The same, before the job is looked at again: at once, or on a full disk in a while.
    virtual Task<bool> commit_and_look(Draft draft) = 0;
    // A while, in which a disk may get room; until the daemon stops.
    virtual Task<void> rest() = 0;
    // Every batch that has arrived is durable and in the series.
    virtual Task<void> flush_telemetry() = 0;
    // The job is looked at again, behind all inputs.
    virtual void look_again() = 0;
    virtual bool inputs_wait() const = 0;
    virtual void attempt_created() = 0;  // a ticket is good from now on
    virtual void aside_changed() = 0;    // JobPlacement::aside()
    // The job is over: says so to whom it concerns.
    virtual Task<void> conclude() = 0;
};

}  // namespace lockstep
