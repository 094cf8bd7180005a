// Stays with a job until it has ended: live on a terminal, lines in a pipe. Asks twice a second,
// goes on asking when the daemon restarts. Blocks; the main thread.
#pragma once

#include "job/cli/context.hpp"

#include <string>

namespace lockstep::cli {

// Ends with ok, job_failed or cancelled as the job did, with the cause printed. `quiet`: only
// changes of state, no ranks.
Exit follow_job(Context& context, const std::string& id, bool quiet);
// `ranks --watch`: the table again and again.
Exit watch_ranks(Context& context, const std::string& id);

}  // namespace lockstep::cli
