// What the processes of ranks are called in process namespaces of their own: a rank in a container
// says 7 where the machine says 12345. What such a process tells of itself (NCCL's RAS, say) is
// known by that number only. Source: NSpid in proc(5)'s status. Blocking reads; any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

namespace lockstep {

struct InnerPids {
    bool nested = false;  // at least one process is in a namespace of its own
    // A process's own number → its rank; of a process in no namespace of its own the usual one.
    std::map<std::int64_t, std::uint32_t> ranks{};
    std::set<std::int64_t> ambiguous{};  // numbers that processes of several ranks have
};

// The process's number in its own namespace; nothing: it is gone.
std::optional<std::int64_t> inner_pid(pid_t pid, const std::filesystem::path& proc = "/proc");

// Of the ranks' processes (`pids`: process → rank) and their descendants, at most
// limits::kEvidenceProcesses of each. `proc`: where proc(5) is mounted.
InnerPids inner_pids(const std::map<std::int64_t, std::uint32_t>& pids,
                     const std::multimap<pid_t, pid_t>& children,
                     const std::filesystem::path& proc = "/proc");

}  // namespace lockstep
