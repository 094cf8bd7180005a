// What lockstepd remembers of each node: attempts that ended there, what the node was blamed for,
// when it was last well. Written with the events it follows from, in one transaction
// (Append::notes); nothing is decided by it. Bounded: limits::kNodeHistory back, and
// limits::kNodeFaults a node; of names an attempt adds at most its own nodes. Plain values.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Not a fault: a job's next attempt goes without the node.
inline constexpr const char* kNodeExcluded = "excluded";
// Nor are these: ranks there computed longer than the job's others (job/model/anomaly.hpp).
inline constexpr const char* kNodeStraggler = "straggler";
inline constexpr const char* kNodeSlow = "slow_node";

struct NodeFault {
    std::string node;
    UnixMillis time = 0;
    std::string kind;  // node_lost, preflight, gpu_fault, gpu_xid, hang; or one of the above
    JobId job;
    std::string user;  // whose job it was
    std::int32_t attempt = 0;
    std::int32_t generation = 0;  // 0 = none had begun
    std::int32_t gpu = -1;        // -1 = none
    std::string message;
};

// An attempt that a node was in.
struct NodeEnded {
    std::string node;
    UnixMillis time = 0;
    bool healthy = false;      // ranks ran on it, and it was not to blame
    std::int32_t attempt = 0;  // of its job; not stored
};
// The scheduler or a person ended the attempt: that nodes were lost in its last generation followed
// from that.
struct NodesAbsolved {
    JobId job;
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
};

struct NodeNotes {
    // The same again (job, attempt, generation, node, kind, GPU) is kept once.
    std::vector<NodeFault> faults;
    std::vector<NodeEnded> ended;
    std::optional<NodesAbsolved> absolved;

    bool empty() const { return faults.empty() && ended.empty() && !absolved; }
};

struct FaultCount {
    std::int64_t all = 0;
    std::int64_t lately = 0;
    UnixMillis newest = 0;
};
struct NodeSummary {
    std::int64_t attempts = 0;
    UnixMillis first_at = 0;
    UnixMillis healthy_at = 0;  // 0 = never
    std::map<std::string, FaultCount> kinds;
};

}  // namespace lockstep
