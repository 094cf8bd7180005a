// A lockstepd of the user's own where none runs: started once, by the first caller, and kept.
// Blocks; the main thread.
#pragma once

#include "job/base/result.hpp"
#include "job/cli/options.hpp"

#include <ostream>
#include <string>

namespace lockstep::cli {

// Whether a process holds the data directory, which lockstepd does for as long as it lives. Only
// then <data-dir>/url is its address: what else listens on a port is not trusted with the token.
bool daemon_holds(const std::string& data_directory);

// Starts lockstepd, unless --url, LOCKSTEP_URL or a configuration names one or one runs already:
// from beside this program, on a free port of 127.0.0.1, with the scheduler slurm where Slurm is
// set up (LOCKSTEP_* are its settings as ever), and returns once it answers. Two at a time start
// one. What was done goes to `err`.
Status ensure_daemon(const Options& options, std::ostream& err);

}  // namespace lockstep::cli
