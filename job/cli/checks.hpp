// What the values of options must be, with messages that say it: the parser puts the option's name
// in front. Pure; any thread.
#pragma once

#include <CLI/App.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

// "must be a whole number from 1 to 1000, not 0"
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
// "must be a number from 0.2 to 3600, not nan"
CLI::Validator decimal_number(double least, double most);
// "runing is none of accepted, …; did you mean running?"
CLI::Validator one_of(std::vector<std::string> words);
// A variable of the shell that is not set: "" is not the same as no option at all.
CLI::Validator not_empty();
// What lockstepd takes as an Idempotency-Key.
CLI::Validator visible_key();

}  // namespace lockstep::cli
