// What may be wrong with a new job, though one that is stored may have it. Control thread only;
// nothing here waits but for the turns of others.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"
#include "job/async/slices.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <string>
#include <vector>

namespace lockstep {

// What the scheduler says of the job, and what lockstepd knows that no scheduler does.
Result<Admission> admit_job(Scheduler& scheduler, const JobSpec& spec);
// The same of every job of the request; the warnings of all, each once.
Task<Result<std::vector<std::string>>> admit_all(Scheduler& scheduler, const SubmitRequest& request,
                                                 Slices& slices);
// Whether the user may be told of the job as it asks for, and has the secrets that it names.
Status check_for_user(const JobSpec& spec, const std::string& user, const ControlContext& context);
// The same of every job of the request.
Status check_all_for_user(const SubmitRequest& request, const std::string& user,
                          const ControlContext& context);

}  // namespace lockstep
