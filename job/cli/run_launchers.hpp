// Launchers that start the ranks of a node themselves: what `lockstep run` takes from their
// options, what it has to tell them, and which of them it replaces. Pure; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/cli/options.hpp"
#include "job/cli/run_guess.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::cli {

// Whether it is one; then `out` says so, and its command has what it must be told. `name`:
// torchrun, accelerate launch, or the module that a Python runs; `from`: the first of its
// arguments. invalid: one that would start processes where Lockstep does, with what to write
// instead.
Result<bool> guess_launcher(Guess& out, const std::string& name, std::size_t from,
                            const RunOptions& options);

// The script that a launcher starts: its first argument that is a file of Python, else their
// number.
std::size_t script_of(const std::vector<std::string>& command, std::size_t from);

std::string base_name(const std::string& path);
// Of a program or script, by its file.
std::string job_name(const std::string& program);

}  // namespace lockstep::cli
