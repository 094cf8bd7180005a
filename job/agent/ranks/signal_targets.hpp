// Which processes of a rank a signal may be sent to: those that catch it, since the default action
// of the signals that ask for a checkpoint is to end the process. Reads /proc (proc(5)); blocking
// reads of small files; any thread.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace lockstep {

// The number of "USR2", "USR1", "TERM", "INT" or "HUP"; 0 for any other word.
int signal_number(std::string_view name);

// Whether the process has a handler for the signal now (SigCgt of /proc/PID/status); false if there
// is no such process.
bool catches_signal(pid_t pid, int number);

// The processes nearest to the root of the tree that catch the signal: the root itself, or, below a
// shell or a launcher that does not, those of its descendants. What a process that catches it has
// forked (the workers of a data loader inherit the handler) is its own affair and not listed.
std::vector<pid_t> processes_that_catch(pid_t root, int number);

}  // namespace lockstep
