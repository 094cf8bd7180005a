// Another program's output (git, scontrol), and a program that stays when this one goes. Blocks;
// the main thread.
#pragma once

#include "job/base/result.hpp"

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::cli {

// What it printed on standard output, at most `most` bytes of it (then it is ended, without an
// error). argv[0] is looked for on PATH. not_found: there is no such program; invalid: it failed,
// with what it said; timed_out.
Result<std::string> output_of(const std::vector<std::string>& argv, const std::string& directory,
                              std::chrono::milliseconds patience, std::size_t most = 16U << 20U);

// Starts it in a session of its own, standard input empty, what it prints appended to `log` (mode
// 0600); it outlives this program. argv[0] is a path. `environment`: NAME=value.
Result<pid_t> start_detached(const std::vector<std::string>& argv,
                             const std::vector<std::string>& environment, const std::string& log);

}  // namespace lockstep::cli
