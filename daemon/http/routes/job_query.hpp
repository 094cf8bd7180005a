// The query of GET /v1/jobs.
#pragma once

#include "daemon/control/base/control.hpp"
#include "daemon/http/base/message.hpp"
#include "job/base/result.hpp"

namespace lockstep {

// Fails with a field error (?name) for each parameter that is unknown or wrong.
Result<JobQuery> job_query(const HttpRequest& request);

}  // namespace lockstep
