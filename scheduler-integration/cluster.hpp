// What a scheduler tells of its machines: partitions, nodes and how much of them is taken, as it
// was last heard. Plain values; any thread.
#pragma once

#include "job/base/clock.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct ClusterNode {
    std::string name;
    std::string state;           // the scheduler's own word: idle, mixed, allocated, down, …
    std::string reason;          // why it is down or drained; "" = it is not, or without a reason
    bool usable = true;          // answers and takes jobs
    bool idle = false;           // usable, and nothing runs on it
    std::int64_t cpus = 0;       // logical processors
    std::int64_t cpus_used = 0;  // promised to jobs
    std::int64_t memory_mb = 0;  // MiB; 0 = unknown
    std::int64_t gpus = 0;
    std::int64_t gpus_used = 0;
    std::map<std::string, std::int64_t>
        gpu_types{};  // of `gpus`, by the scheduler's name of their type
    std::vector<std::string> partitions{};
};

struct ClusterPartition {
    std::string name;
    std::string state;  // UP, DOWN, DRAIN, INACTIVE
    bool is_default = false;
    std::int64_t nodes = 0;
    std::optional<std::int64_t> max_time_seconds{};      // none = unlimited
    std::optional<std::int64_t> default_time_seconds{};  // none = not set
    std::optional<std::int64_t> max_nodes_per_job{};     // none = unlimited
};

struct Cluster {
    std::string name;        // "" = it has none
    std::string version;     // of the scheduler; "" = unknown
    bool reachable = true;   // at the last question
    std::string problem;     // not reachable: why
    UnixMillis seen_at = 0;  // when the nodes were asked for; 0 = not yet
    std::vector<ClusterPartition> partitions;
    std::vector<ClusterNode> nodes;  // by name
};

}  // namespace lockstep
