// Makes a job that is over none, because somebody asks for it or because it was kept for long
// enough; what is left of it goes by and by (retention.hpp). Control thread only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"
#include "daemon/control/jobs/job_lifecycle.hpp"
#include "daemon/control/jobs/retention.hpp"
#include "daemon/control/jobs/ticket_gate.hpp"

#include <string>

namespace lockstep {

class JobRemoval {
  public:
    JobRemoval(ControlContext& context, JobRegistry& registry, const TicketGate& gate,
               JobLifecycle& lifecycle);

    // As Control has it.
    Task<Result<std::string>> remove(Caller caller, std::string id, bool keep_checkpoints);
    // From here on jobs go by their age and size, until halt().
    void begin() { retention_.begin(); }
    void halt() { retention_.halt(); }

  private:
    Status may_go(const std::string& id, const std::filesystem::path& folder) const;
    // Its folder, if that is of another runs directory than the one of now; "" = it is not.
    // not_found: there is no such job.
    Task<Result<std::filesystem::path>> earlier_folder(JobId job);
    // `where`: gets its folder, unless it is null; outlives the coroutine.
    Task<Status> remove_over(JobId job, bool checkpoints, std::filesystem::path* where = nullptr);
    bool snapshot_in_use(const std::string& snapshot) const;  // by a job that is not over

    ControlContext& context_;
    JobRegistry& registry_;
    const TicketGate& gate_;
    JobLifecycle& lifecycle_;
    Retention retention_;
};

}  // namespace lockstep
