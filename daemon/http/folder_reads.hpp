// Reads in a job's folder for a handler: away from the control thread, because the folder may be of
// a file system that hangs, as the job does. Control thread only, except for the work.
#pragma once

#include "daemon/http/routes.hpp"

#include <functional>
#include <string>

namespace lockstep {

// What `work` answers. 503: it does not within the context's read_patience, or too many reads of
// this folder have not returned. `work` owns all that it uses.
Task<HttpResponse> read_aside(RouteContext context, std::string folder,
                              std::function<HttpResponse()> work);

}  // namespace lockstep
