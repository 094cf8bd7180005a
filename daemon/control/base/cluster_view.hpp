// The scheduler's machines as the API shows them. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "scheduler-integration/cluster.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct NodeQuery {
    std::string partition;  // "" = any
    std::string state;      // the scheduler's word, or "usable", "unusable", "idle"; "" = any
    std::size_t limit = 500;
    std::string cursor;  // opaque; "" = from the first
};

// {scheduler, name, version, reachable, problem, seen_at, partitions, nodes, cpus, gpus}: counts
// over all nodes, and per partition.
Json cluster_json(const Cluster& cluster, std::string_view scheduler);

// What the scheduler says of one, without the jobs there.
Json node_json(const ClusterNode& node);

// {items, seen_at, next_cursor} in the order of the names. `jobs`: by node name the ids of the jobs
// that the caller may see there. invalid: a cursor that was not given out.
Result<Json> nodes_json(const Cluster& cluster, const NodeQuery& query,
                        const std::map<std::string, std::vector<std::string>>& jobs);

}  // namespace lockstep
