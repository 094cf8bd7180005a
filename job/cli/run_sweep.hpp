// `lockstep run --sweep`: parameters on a command line as the sweep of a specification.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <string>
#include <vector>

namespace lockstep::cli {

// {"parameters": {NAME: [values], …}} of texts NAME=VALUES, in their order. VALUES is a list with
// commas between, in which 1..4 stands for 1,2,3,4, or a JSON array. NAME stands in braces in a
// text of `spec`, as in --lr {lr}, or is the path of a field, as in resources.nodes. A value is a
// number, true or false if it is written as JSON writes it, else a text, so that what a command
// gets is what was typed; what fills a variable is always a text. invalid: what cannot be meant.
// Pure; any thread.
Result<Json> sweep_of_texts(const std::vector<std::string>& texts, const Json& spec);

}  // namespace lockstep::cli
