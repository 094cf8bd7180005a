// What users may have done to jobs that are not over. Each command is durable when it is answered,
// by the job's JSON; its effects come after. Control thread only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/commands.hpp"
#include "daemon/control/base/context.hpp"
#include "job/model/command_keys.hpp"

#include <string>

namespace lockstep {

class JobCommands final : public Commands {
  public:
    JobCommands(ControlContext& context, JobRegistry& registry)
        : context_(context), registry_(registry) {}

    Task<Result<std::string>> cancel(Caller caller, std::string id) override;
    Task<SubmitResult<CommandDone>> restart(Caller caller, std::string id,
                                            std::string key) override;
    Task<SubmitResult<CommandDone>> checkpoint(Caller caller, std::string id,
                                               std::string key) override;
    Task<Result<std::string>> take_evidence(Caller caller, std::string id) override;
    Task<Result<std::string>> take_profile(Caller caller, std::string id,
                                           ProfileQuery query) override;
    Task<Result<std::string>> cancel_sweep(Caller caller, std::string id) override;

  private:
    // Of a job that is not over; conflict: it is.
    template <class Input>
    Task<Result<std::string>> command(Caller caller, std::string id);
    // The same under an Idempotency-Key, once; "" = none. Of a job that is over, what was done.
    template <class Input>
    Task<SubmitResult<CommandDone>> once(Caller caller, std::string id, std::string key,
                                         Command command);
    Task<SubmitResult<CommandDone>> of_ended(Caller caller, std::string id, std::string key,
                                             Command command);

    // Of the newest commands of a job that is over.
    Task<Result<CommandKeys>> keys_of(std::string id);

    ControlContext& context_;
    JobRegistry& registry_;
};

}  // namespace lockstep
