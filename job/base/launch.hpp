// Starting a program with posix_spawn(3), for all that need nothing to run in the child before it
// is the program. Its standard input is empty, it has no descriptor but those it is given, no
// signal is blocked or ignored (but glibc's own two, 32 and 33, which posix_spawn(3) leaves so).
// Blocking only for the time of a fork; any thread.
//
// Who forks instead, and why: job/async/subprocess.cpp (the child dies with this process, resource
// limits), job/agent/preflight/errands.cpp, job/agent/keeper.cpp and task_shim.cpp (the child is
// this program), scheduler-integration/exec (it becomes another user).
#pragma once

#include "job/base/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class ProcessGroup : std::uint8_t { same, own, session };  // session: with a group of its own

struct LaunchPlan {
    std::string program;  // a path; without a slash it is looked for on PATH
    std::vector<std::string> argv;
    std::optional<std::vector<std::string>> environment{};  // NAME=value; nothing: this process's
    std::string directory{};                                // "" = this process's
    // What it prints: two descriptors, or a file that is appended to and created with mode 0600.
    int output = -1;
    int error = -1;
    std::string log{};
    bool log_may_be_link = false;
    // Become 3, 4 … of the process; 10 or more each, so that none takes another's place.
    std::vector<int> handed{};
    ProcessGroup group = ProcessGroup::same;
};

// 0, or the error number that posix_spawn(3) gives.
int launch(const LaunchPlan& what, pid_t& pid);

// Readable once the process has ended; invalid with errno if there is none.
UniqueFd open_pidfd(pid_t pid);

// As exec(3) wants them: of `items`, which stay and are not changed, and a null.
std::vector<char*> exec_pointers(std::vector<std::string>& items);

}  // namespace lockstep
