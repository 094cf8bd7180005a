// User stacks of a process by what is installed: py-spy for Python, gdb or elfutils' eu-stack for
// the rest. take_stacks(): agent thread only; what is named must outlive the coroutine.
//
// A process that is stopped or waits uninterruptibly is not attached to: it would be woken, or the
// debugger would wait as long as it does. py-spy reads without stopping (--nonblocking), so it may
// look at a stopped one. A debugger that is killed for its time may leave the process stopped that
// it was attaching to; such a one is continued.
#pragma once

#include "job/agent/ranks/process_look.hpp"
#include "job/async/subprocess.hpp"
#include "job/model/wire/wire.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct Stacks {
    std::string python;  // text for people, "" = none
    std::string native;
    std::string frame;  // where it is, in a line
    std::vector<wire::EvidenceGap> missing{};
};

// Where the programs are, "" if they are not installed.
struct StackTools {
    std::string py_spy;
    std::string gdb;
    std::string eu_stack;
};
// By the PATH they were looked for in (tool_path()).
using StackToolMap = std::map<std::string, StackTools>;

// The PATH in which a process's tools are looked for first; "" if none of its own counts.
std::string tool_path(const ProcessLook& process);
// Blocking, and as slow as the slowest folder of a PATH; any thread. `path`: where programs are
// looked for after each of `own`.
StackToolMap find_stack_tools(const std::set<std::string>& own, const std::string& path);

// Of the tree's first limits::kEvidenceStacks processes that are no shells. Processes whose PATH is
// not in `tools` get those of "". Once `over` is true no process is attached to any more.
// `have_python`: the Python stacks are known, py-spy is not asked.
Task<Stacks> take_stacks(ProcessRunner& runner, const std::vector<ProcessLook>& tree,
                         const StackToolMap& tools, std::string path, const bool& over,
                         bool have_python = false);

}  // namespace lockstep
