#include "daemon/control/base/cluster_view.hpp"

#include "daemon/control/base/query_error.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

struct Count {
    std::int64_t nodes = 0, usable = 0, idle = 0;
    std::int64_t cpus = 0, cpus_used = 0;
    std::int64_t gpus = 0, gpus_used = 0;

    void add(const ClusterNode& node) {
        ++nodes;
        usable += node.usable ? 1 : 0;
        idle += node.idle ? 1 : 0;
        if (node.usable) {  // what nobody can have is not there
            cpus += node.cpus;
            cpus_used += node.cpus_used;
            gpus += node.gpus;
            gpus_used += node.gpus_used;
        }
    }
    void write(Json& out) const {
        out["nodes"] = {{"total", nodes}, {"usable", usable}, {"idle", idle}};
        out["cpus"] = {{"usable", cpus}, {"used", cpus_used}};
        out["gpus"] = {{"usable", gpus}, {"used", gpus_used}};
    }
};

bool is_in(const ClusterNode& node, const std::string& partition) {
    return std::find(node.partitions.begin(), node.partitions.end(), partition) !=
           node.partitions.end();
}

Json partition_json(const ClusterPartition& partition, const Cluster& cluster) {
    Json out = Json::object();
    out["name"] = partition.name;
    out["state"] = partition.state;
    out["default"] = partition.is_default;
    if (partition.max_time_seconds) {
        out["max_time"] = format_time_limit(*partition.max_time_seconds);
    }
    if (partition.default_time_seconds) {
        out["default_time"] = format_time_limit(*partition.default_time_seconds);
    }
    if (partition.max_nodes_per_job) {
        out["max_nodes_per_job"] = *partition.max_nodes_per_job;
    }
    if (cluster.nodes.empty()) {
        out["nodes"] = {{"total", partition.nodes}};
        return out;
    }
    Count count;
    for (const ClusterNode& node : cluster.nodes) {
        if (is_in(node, partition.name)) {
            count.add(node);
        }
    }
    count.write(out);
    return out;
}

bool wanted(const ClusterNode& node, const NodeQuery& query) {
    if (!query.partition.empty() && !is_in(node, query.partition)) {
        return false;
    }
    if (query.state.empty()) {
        return true;
    }
    return query.state == "usable"     ? node.usable
           : query.state == "unusable" ? !node.usable
           : query.state == "idle"     ? node.idle
                                       : node.state == query.state;
}

}  // namespace

Json node_json(const ClusterNode& node) {
    Json out = Json::object();
    out["name"] = node.name;
    out["state"] = node.state;
    out["usable"] = node.usable;
    if (!node.reason.empty()) {
        out["reason"] = node.reason;
    }
    out["partitions"] = node.partitions;
    out["cpus"] = node.cpus;
    out["cpus_used"] = node.cpus_used;
    if (node.memory_mb > 0) {
        out["memory_mb"] = node.memory_mb;
    }
    out["gpus"] = node.gpus;
    out["gpus_used"] = node.gpus_used;
    return out;
}

Json cluster_json(const Cluster& cluster, std::string_view scheduler) {
    Json out = Json::object();
    out["scheduler"] = scheduler;
    if (!cluster.name.empty()) {
        out["name"] = cluster.name;
    }
    if (!cluster.version.empty()) {
        out["version"] = cluster.version;
    }
    out["reachable"] = cluster.reachable;
    if (!cluster.problem.empty()) {
        out["problem"] = cluster.problem;
    }
    if (cluster.seen_at != 0) {
        out["seen_at"] = to_rfc3339(cluster.seen_at);
        Count count;
        for (const ClusterNode& node : cluster.nodes) {
            count.add(node);
        }
        count.write(out);
    }
    out["partitions"] = Json::array();
    for (const ClusterPartition& partition : cluster.partitions) {
        out["partitions"].push_back(partition_json(partition, cluster));
    }
    return out;
}

Result<Json> nodes_json(const Cluster& cluster, const NodeQuery& query,
                        const std::map<std::string, std::vector<std::string>>& jobs) {
    std::string after;
    if (!query.cursor.empty()) {
        const auto decoded = base64_decode(query.cursor);
        if (!decoded) {
            return fail(query_error("cursor", "not one that this service has given out"));
        }
        after = *decoded;
    }
    std::vector<const ClusterNode*> found;
    for (const ClusterNode& node : cluster.nodes) {
        if (node.name > after && wanted(node, query)) {
            found.push_back(&node);
        }
    }
    std::sort(found.begin(), found.end(),
              [](const ClusterNode* a, const ClusterNode* b) { return a->name < b->name; });
    Json out = Json::object();
    if (cluster.seen_at != 0) {
        out["seen_at"] = to_rfc3339(cluster.seen_at);
    }
    out["items"] = Json::array();
    const std::size_t count = std::min(found.size(), query.limit);
    for (std::size_t i = 0; i < count; ++i) {
        Json item = node_json(*found[i]);
        const auto here = jobs.find(found[i]->name);
        item["jobs"] = here == jobs.end() ? std::vector<std::string>{} : here->second;
        out["items"].push_back(std::move(item));
    }
    if (found.size() > count) {
        out["next_cursor"] = base64_encode(found[count - 1]->name);
    }
    return out;
}

}  // namespace lockstep
