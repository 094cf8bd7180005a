// Reads a job specification for submission. Blocks; any thread.
#pragma once

#include "job/base/result.hpp"

#include <string>

namespace lockstep::cli {

// The file's text, or standard input for "-"; at most limits::kBodyBytes. Sent as it is: the
// daemon judges it, so that there is one opinion.
Result<std::string> read_spec(const std::string& path);

}  // namespace lockstep::cli
