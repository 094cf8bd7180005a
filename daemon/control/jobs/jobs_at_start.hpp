// What lockstepd takes up again when it starts: unfinished jobs with their series and their place
// in the line, and agents that may not have heard that their job is over. Control thread only;
// nothing is left here once take_up() returns.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/history/history_keeper.hpp"
#include "daemon/control/jobs/job_admission.hpp"
#include "daemon/control/jobs/job_lifecycle.hpp"
#include "daemon/control/jobs/ticket_gate.hpp"

#include <map>
#include <string>
#include <vector>

namespace lockstep {

class JobsAtStart {
  public:
    JobsAtStart(ControlContext& context, JobRegistry& registry, JobLifecycle& lifecycle,
                JobAdmission& admission, TicketGate& gate, HistoryKeeper& history)
        : context_(context),
          registry_(registry),
          lifecycle_(lifecycle),
          admission_(admission),
          gate_(gate),
          history_(history) {}

    // Loads what is unfinished; an error means that the store cannot be read.
    Task<Status> load();
    // Starts it, or puts it in line; once the settings say where agents are listened for.
    void take_up();

  private:
    Task<Status> restore(JobId id);

    ControlContext& context_;
    JobRegistry& registry_;
    JobLifecycle& lifecycle_;
    JobAdmission& admission_;
    TicketGate& gate_;
    HistoryKeeper& history_;
    std::vector<std::string> loaded_;
    std::map<std::string, JobAdmission::After> after_;  // of these, those with `after`
    std::vector<JobId> ended_lately_;                   // their agents may still be there
};

}  // namespace lockstep
