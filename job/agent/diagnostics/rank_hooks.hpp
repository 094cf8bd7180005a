// What answers for a rank from within, as it is seen from outside: the file that a process holds
// open whose Python has the hooks (job/rank/python/hooks), or that is lockstep-train
// (job/trainer/step_profile.hpp). Blocking reads of /proc; any thread.
#pragma once

#include "job/base/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kPythonHookFile = "stacks.";
inline constexpr std::string_view kTrainerHookFile = "spans.";

// <prefix><number> beside the report socket; the number is the one that the process has itself, in
// its own namespace. Of a fork it is its parent's file.
struct HooksFile {
    UniqueFd file;  // opened to read; empty: they are not in this process
    std::int64_t number = 0;
};
HooksFile hooks_file(pid_t pid, std::string_view prefix = kPythonHookFile);

}  // namespace lockstep
