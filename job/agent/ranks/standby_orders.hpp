// What a process that waits to become a rank (standbys.hpp) can become, and what it is told then.
// Pure; any thread.
#pragma once

#include "job/agent/ranks/spawn.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

// The first word of a Python command that is the script's own (python -u train.py HERE, python -m
// package HERE). invalid: the command is none that reads Lockstep's hooks before its script;
// says why.
Result<std::size_t> script_arguments(const std::vector<std::string>& argv);

// What makes of a process that was started by `was` the one that `is` asks for: records that end
// with a null byte, "+NAME=VALUE" (set), "-NAME" (unset), ">WORD" (an argument of the script, all
// of them if any has changed), "!" alone before these. invalid: nothing can; says why. Variables
// that modules, the interpreter or the linker have read by then must be the same.
Result<std::string> standby_orders(const SpawnRequest& was, const SpawnRequest& is);

}  // namespace lockstep
