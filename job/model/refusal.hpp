// Why a program did not begin, in the words that it printed last: arguments that its parser
// refuses, a file, module or program that is not there. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// In what a program that ended with `exit_code` printed: what argparse, click, typer, tyro, absl,
// Fire and jsonargparse say of arguments, Python of the script that it was to run, a shell of a
// command. Only with the codes that these end with, and only at the end of the output.
std::optional<std::string> printed_refusal(std::string_view output, std::int32_t exit_code);

}  // namespace lockstep
