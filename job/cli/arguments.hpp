// The words of the command line before and around CLI11: `run`'s options and help, the command that
// follows it, and verbs that do not exist. Pure; any thread.
#pragma once

#include "job/cli/options.hpp"

#include <CLI/App.hpp>

#include <string>
#include <vector>

namespace lockstep::cli {

void declare_run(CLI::App& app, Options& options);

// The words as the parser wants them. What follows `run`'s own options is a command, whose options
// are not ours: a "--" is put in front of it, unless there is one. `help [VERB]` is --help,
// `version` is --version. An empty value (--state=) is a word of its own.
std::vector<std::string> prepared_arguments(const CLI::App& app, std::vector<std::string> words);

// "unknown command sumbit, did you mean submit?"; "" if the words name a verb, or none.
std::string unknown_verb(const CLI::App& app, const std::vector<std::string>& words);
// "unknown option --stat of lockstep jobs; did you mean --state?"; "" if each is known, or the verb
// is not.
std::string unknown_option(const CLI::App& app, const std::vector<std::string>& words);
// "argument 2 is not UTF-8: …", the first that is not; "" if all are.
std::string not_utf8(const std::vector<std::string>& words);

}  // namespace lockstep::cli
