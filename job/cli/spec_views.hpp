// What a job was asked for, as people read it. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/cli/terminal.hpp"

#include <string>
#include <vector>

namespace lockstep::cli {

// Command, directory, setup and how much environment: the part of `show` that is in the
// specification.
std::vector<std::string> spec_view(const Terminal& terminal, const Json& spec);

// The environment that the ranks begin with and what the job adds, NAME=value in order; the values
// of names that say so (is_secret_name()) are not shown.
std::vector<std::string> environment_view(const Json& spec);

}  // namespace lockstep::cli
