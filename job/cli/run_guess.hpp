// What a command line says about itself: which framework's variables its ranks want, whether it is
// a launcher that starts a node's ranks itself, and what a job of it should be called. Reads the
// script; the main thread.
#pragma once

#include "job/base/result.hpp"
#include "job/cli/caller.hpp"
#include "job/cli/options.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::cli {

struct Guess {
    std::string framework = "command";
    std::string launch = "rank";
    std::string why;   // "train.py imports torch"
    std::string name;  // of the job
    // What the launcher's own options ask for; 0 = nothing.
    std::int64_t nodes = 0;
    std::int64_t min_nodes = 0;  // torchrun --nnodes MIN:MAX
    std::int64_t ranks_per_node = 0;
    std::vector<std::string> command;  // with what the launcher must be told
    // What the script sets itself and Lockstep must know as well.
    std::map<std::string, std::string> environment;
    std::vector<std::string> warnings;
};

// invalid: a command that cannot run this way, on several nodes perhaps, with what to write
// instead.
Result<Guess> guess_run(const RunOptions& options, const Caller& caller);

}  // namespace lockstep::cli
