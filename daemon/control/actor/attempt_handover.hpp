// Hands a job's newest attempt to the scheduler, exactly once: an intent is on disk before each
// try, and what an earlier daemon has handed over is adopted. Control thread; called by the job's
// coroutine alone; what it is made with must outlive it.
#pragma once

#include "daemon/control/actor/job_steps.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"

#include <string>
#include <vector>

namespace lockstep {

class AttemptHandover {
  public:
    AttemptHandover(ControlContext& context, JobMachine& machine, JobSteps& steps)
        : context_{context}, machine_{machine}, steps_{steps} {}

    // The attempt's folder and ticket, then its event; tried again at the next tick if that fails.
    Task<void> create();
    // True once the scheduler has the attempt.
    Task<bool> hand_over();
    // The scheduler takes up what an earlier daemon handed over. An error: it does not know yet.
    Task<Status> adopt();

  private:
    const Job& job() const { return machine_.job(); }
    Draft draft() const { return machine_.draft(steps_.now()); }
    std::vector<std::string> missing_secrets_now() const;
    AttemptRequest request() const;

    ControlContext& context_;
    JobMachine& machine_;
    JobSteps& steps_;
};

}  // namespace lockstep
