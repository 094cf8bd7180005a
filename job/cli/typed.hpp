// What the person typed, for hints that can be pasted into a shell. Pure; any thread.
#pragma once

#include "job/cli/options.hpp"

#include <CLI/App.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// One word as a POSIX shell reads it: in quotes only where it needs them.
std::string shell_word(std::string_view text);

// The options of every verb (--url, --token-file, …) among the words, as they were typed, wherever
// they stand. Not those of the environment: the next command has it, too. `words` as
// prepared_arguments() has made them.
std::vector<std::string> general_words(const CLI::App& app, const std::vector<std::string>& words);

// "lockstep --url http://x:1": what a hint's command begins with, so that it reaches the same
// daemon with the same token.
std::string same_lockstep(const Options& options);

}  // namespace lockstep::cli
