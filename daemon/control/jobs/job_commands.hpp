// What users may have done to jobs that are not over. Each command is durable when it is answered,
// by the job's JSON; its effects come after. Control thread only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"

#include <string>

namespace lockstep {

class JobCommands {
  public:
    JobCommands(ControlContext& context, JobRegistry& registry)
        : context_(context), registry_(registry) {}

    // As Control has them.
    Task<Result<std::string>> cancel(Caller caller, std::string id);
    Task<Result<std::string>> restart(Caller caller, std::string id);
    Task<Result<std::string>> checkpoint(Caller caller, std::string id);
    Task<Result<std::string>> take_evidence(Caller caller, std::string id);
    Task<Result<std::string>> take_profile(Caller caller, std::string id, ProfileQuery query);
    Task<Result<std::string>> cancel_sweep(Caller caller, std::string id);

  private:
    // Of a job that is not over; conflict: it is.
    template <class Input>
    Task<Result<std::string>> command(Caller caller, std::string id);

    ControlContext& context_;
    JobRegistry& registry_;
};

}  // namespace lockstep
