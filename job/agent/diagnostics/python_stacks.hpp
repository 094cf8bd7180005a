// The Python stacks of ranks, written by their own processes when they are sent a signal
// (job/rank/python/hooks, faulthandler): no ptrace, no root, no tool, and a process that is stuck
// in C or holds the interpreter's lock answers too. Only processes that catch the signal and hold
// the hooks' file open are sent it; any other would die of it. Blocking, for `patience` at most;
// any thread.
#pragma once

#include "job/agent/ranks/process_look.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace lockstep {

struct PythonStacks {
    std::string text{};     // of its processes that answered, for people: python.txt
    std::string stack{};    // main_python_stack() of the first of them
    std::string missing{};  // why there is nothing; "" = there is, or it is not Python
};

// Of each tree, in their order. All processes are asked at once, but those that share a file (a
// fork has its parent's) one after the other.
std::vector<PythonStacks> ask_python_stacks(const std::vector<std::vector<ProcessLook>>& trees,
                                            std::chrono::milliseconds patience);

}  // namespace lockstep
