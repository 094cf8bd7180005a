// `lockstep run`: a specification made of a command line, the caller's directory and environment.
#pragma once

#include "job/cli/caller.hpp"
#include "job/cli/context.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {

struct RunPlan {
    Json spec;  // as it is kept with -o: without the record of the environment
    // What was decided, as names and values, and what is odd about it.
    std::vector<std::pair<std::string, std::string>> decided;
    std::vector<std::string> warnings;
};

// invalid: arguments that make no job, a program that is not there. Pure but for looking at the
// caller's files. The ranks start in the caller's directory.
Result<RunPlan> plan_run(const RunOptions& options, const Caller& caller);

// Who calls, and from where: --chdir. invalid: that names no folder.
Result<Caller> caller_of(const RunOptions& options);

Exit run_job(Context& context);

}  // namespace lockstep::cli
