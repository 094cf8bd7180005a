// What happens to a job while it is followed, told in a line an event. Pure: JSON in, text out. The
// main thread.
#pragma once

#include "job/base/json.hpp"
#include "job/cli/terminal.hpp"

#include <optional>
#include <string>

namespace lockstep::cli {

// The event as a line without its time, or nothing where it is part of every job's ordinary life
// (it was claimed, its first ranks started, it wrote a checkpoint) or is said otherwise (its end).
// Of a kind that this program does not know: its name and what it says.
std::optional<std::string> story_line(const Terminal& terminal, const Json& event);

}  // namespace lockstep::cli
