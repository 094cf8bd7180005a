// Which option made which field of a specification that this program has made itself: whoever typed
// `--time 5x` has never seen /resources/time_limit. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/cli/document.hpp"
#include "job/cli/options.hpp"

#include <string>

namespace lockstep::cli {

// "--time 5x" for /resources/time_limit, with what the document has there; the pointer itself where
// no option made it, or where the document is a file.
std::string name_of_field(const Document& document, const std::string& pointer);
// "--label a" for ?label, a parameter of a query, and for fields of what verbs send but
// submissions; the pointer itself where no option made it.
std::string name_of_parameter(const Options& options, const std::string& pointer);
// The text with "--time" for each /resources/time_limit in it, likewise.
std::string with_option_names(const Document& document, std::string text);

}  // namespace lockstep::cli
