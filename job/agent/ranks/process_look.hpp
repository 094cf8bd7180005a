// What the processes of a rank are doing, from /proc (proc(5)): the rank's own and its descendants,
// each with its threads. Blocking reads of small files; any thread. Nothing here needs a process to
// run, answer or be let go: a process that waits uninterruptibly is read only where the kernel
// takes no lock of its memory, for such a read could wait as long as it does.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct ProcessLook {
    pid_t pid = -1;
    std::string name;    // comm
    std::string state;   // proc(5)'s letter; "" = it is gone
    bool stuck = false;  // it or a thread of it waits uninterruptibly, and still did a moment later
    bool stopped = false;
    bool shell = false;   // sh and its like: what it has started is meant
    bool python = false;  // the interpreter, or a program with libpython in it
    bool nccl = false;    // NCCL is loaded
    std::map<std::string, std::string> environment;  // as it was started; empty if stuck
    std::string folder;                              // where it works; "" = not known
    std::string root;    // prefix of its paths as this process sees them; "" = the same root
    std::string text;    // for people: state.txt
    std::string kernel;  // for people: kernel.txt; "" = only root may read it
};

// The process and its descendants, parents before children, at most limits::kEvidenceProcesses.
// Empty if it is gone.
std::vector<ProcessLook> look_at_tree(pid_t root, const std::multimap<pid_t, pid_t>& children);
// All processes of the machine: parent → child.
std::multimap<pid_t, pid_t> children_by_parent();

}  // namespace lockstep
