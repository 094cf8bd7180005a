// The hooks in a rank's Python (job/rank/python/hooks), as they are seen from outside: the file
// that each process of them holds open. Blocking reads of /proc; any thread.
#pragma once

#include "job/base/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>

namespace lockstep {

// stacks.<number> beside the report socket; the number is the one that the process has itself, in
// its own namespace. Of a fork it is its parent's file.
struct HooksFile {
    UniqueFd file;  // opened to read; empty: the hooks are not in this process
    std::int64_t number = 0;
};
HooksFile hooks_file(pid_t pid);

}  // namespace lockstep
