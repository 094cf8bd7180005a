// User stacks of a process by what is installed: py-spy for Python, gdb or elfutils' eu-stack for
// the rest. Agent thread only; what is named must outlive the coroutine.
//
// A process that is stopped or waits uninterruptibly is not attached to: it would be woken, or the
// debugger would wait as long as it does. py-spy reads without stopping (--nonblocking), so it may
// look at a stopped one. A debugger that is killed for its time may leave the process stopped that
// it was attaching to; such a one is continued.
#pragma once

#include "job/agent/process_look.hpp"
#include "job/async/subprocess.hpp"
#include "job/model/wire.hpp"

#include <string>
#include <vector>

namespace lockstep {

struct Stacks {
    std::string python;  // text for people, "" = none
    std::string native;
    std::string frame;  // where it is, in a line
    std::vector<wire::EvidenceGap> missing{};
};

// Of the tree's first limits::kEvidenceStacks processes that are no shells. `path`: where programs
// are looked for after the process's own PATH.
Task<Stacks> take_stacks(ProcessRunner& runner, const std::vector<ProcessLook>& tree,
                         std::string path);

}  // namespace lockstep
