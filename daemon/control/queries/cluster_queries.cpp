#include "daemon/control/queries/cluster_queries.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/actor/node_notes.hpp"
#include "daemon/store/node_records.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// {since, attempts, faults, faults_7d, by_kind, slow, excluded, last_fault_at, healthy_at}
Json history_json(const NodeSummary& node, bool healthy_now, UnixMillis now) {
    Json out = Json::object();
    Json kinds = Json::object();
    FaultCount faults;
    std::int64_t excluded = 0;
    std::int64_t slow = 0;
    for (const auto& [kind, count] : node.kinds) {
        if (kind == kNodeExcluded) {
            excluded = count.all;
            continue;
        }
        if (kind == kNodeStraggler || kind == kNodeSlow) {
            slow += count.all;
            continue;
        }
        kinds[kind] = count.all;
        faults.all += count.all;
        faults.lately += count.lately;
        faults.newest = std::max(faults.newest, count.newest);
    }
    out["since"] = to_rfc3339(node.first_at);
    out["attempts"] = node.attempts;
    out["faults"] = faults.all;
    out["faults_7d"] = faults.lately;
    out["by_kind"] = std::move(kinds);
    out["slow"] = slow;
    out["excluded"] = excluded;
    if (faults.newest != 0) {
        out["last_fault_at"] = to_rfc3339(faults.newest);
    }
    if (healthy_now || node.healthy_at != 0) {
        out["healthy_at"] = to_rfc3339(healthy_now ? now : node.healthy_at);
    }
    return out;
}

// Of a job that the caller may not see it is only told that, when and of which kind it was.
Json fault_json(const NodeFault& fault, const Caller& caller) {
    Json out = Json::object();
    out["time"] = to_rfc3339(fault.time);
    out["kind"] = fault.kind;
    if (!caller.sees(fault.user)) {
        return out;
    }
    out["job"] = fault.job.value;
    out["user"] = fault.user;
    out["attempt"] = fault.attempt;
    if (fault.generation > 0) {
        out["generation"] = fault.generation;
    }
    if (fault.gpu >= 0) {
        out["gpu"] = fault.gpu;
    }
    out["message"] = fault.message;
    return out;
}

struct OnNode {
    std::vector<std::string> jobs;  // that the caller may see
    bool well = false;              // ranks run there, and its agent is heard
};

std::map<std::string, OnNode> jobs_on_nodes(Scheduler& scheduler, const JobRegistry& registry,
                                            const Caller& caller) {
    const std::string machine = one_machine(scheduler);
    std::map<std::string, OnNode> out;
    for (const auto& [id, actor] : registry.unfinished()) {
        const Attempt* attempt = actor->job().attempt();
        if (attempt == nullptr) {
            continue;
        }
        const Generation* live = actor->job().live_generation();
        const bool runs = live != nullptr && live->running_at != 0;
        for (const auto& [slot, claim] : attempt->claims) {
            if (machine.empty() && !actor->was_given(claim.node)) {
                continue;
            }
            OnNode& here = out[machine.empty() ? claim.node : machine];
            here.well = here.well ||
                        (runs && !attempt->lost.contains(slot) && actor->links().contains(slot));
            if (caller.sees(actor->job().user) && (here.jobs.empty() || here.jobs.back() != id)) {
                here.jobs.push_back(id);
            }
        }
    }
    return out;
}

}  // namespace

Json ClusterQueries::cluster() {
    Json out = cluster_json(context_.scheduler.cluster(), context_.scheduler.name());
    if (context_.settings.account.is_shared()) {
        out["shared_account"] = true;
        out["account"] = context_.settings.account.name;
    }
    return out;
}

Task<Result<std::string>> ClusterQueries::nodes(Caller caller, NodeQuery query) {
    const Cluster cluster = context_.scheduler.cluster();
    const auto on_nodes = jobs_on_nodes(context_.scheduler, registry_, caller);
    std::map<std::string, std::vector<std::string>> jobs;
    for (const auto& [name, here] : on_nodes) {
        jobs[name] = here.jobs;
    }
    auto page = nodes_json(cluster, query, jobs);
    LOCKSTEP_CO_TRY(page);
    Json& items = (*page)["items"];
    if (items.empty()) {
        co_return dump_json(*page);
    }
    const UnixMillis now = context_.clock.wall();
    const std::function<Result<std::map<std::string, NodeSummary>>(Database&)> read =
        [first = items.front()["name"].get<std::string>(),
         last = items.back()["name"].get<std::string>(),
         now](Database& db) { return NodeRecords{db}.summaries(first, last, now); };
    const auto known = co_await context_.store.read<std::map<std::string, NodeSummary>>(read);
    LOCKSTEP_CO_TRY(known);
    for (Json& item : items) {
        const auto name = item["name"].get<std::string>();
        const auto found = known->find(name);
        if (found != known->end()) {
            const auto here = on_nodes.find(name);
            const bool well = here != on_nodes.end() && here->second.well;
            item["history"] = history_json(found->second, well, now);
        }
    }
    co_return dump_json(*page);
}

Task<Result<std::string>> ClusterQueries::node(Caller caller, std::string name) {
    const Cluster cluster = context_.scheduler.cluster();
    const auto node = std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                                   [&name](const ClusterNode& one) { return one.name == name; });
    if (node == cluster.nodes.end()) {
        const bool asked = cluster.seen_at != 0 || !cluster.nodes.empty();
        co_return fail(asked ? Errc::not_found : Errc::unavailable,
                       asked ? "the scheduler has no node " + printable(name)
                             : "the scheduler's nodes are being asked for");
    }
    const auto on_nodes = jobs_on_nodes(context_.scheduler, registry_, caller);
    const auto here = on_nodes.find(name);
    Json out = node_json(*node);
    out["jobs"] = here == on_nodes.end() ? std::vector<std::string>{} : here->second.jobs;
    const UnixMillis now = context_.clock.wall();
    using Known = std::pair<std::map<std::string, NodeSummary>, std::vector<NodeFault>>;
    const std::function<Result<Known>(Database&)> read = [name,
                                                          now](Database& db) -> Result<Known> {
        auto summary = NodeRecords{db}.summaries(name, name, now);
        LOCKSTEP_TRY(summary);
        auto faults = NodeRecords{db}.faults(name, now, limits::kNodeFaultsShown);
        LOCKSTEP_TRY(faults);
        return Known{std::move(*summary), std::move(*faults)};
    };
    const auto known = co_await context_.store.read<Known>(read);
    LOCKSTEP_CO_TRY(known);
    if (const auto found = known->first.find(name); found != known->first.end()) {
        const bool well = here != on_nodes.end() && here->second.well;
        out["history"] = history_json(found->second, well, now);
    }
    out["faults"] = Json::array();
    for (const NodeFault& fault : known->second) {
        out["faults"].push_back(fault_json(fault, caller));
    }
    co_return dump_json(out);
}

Task<Status> ClusterQueries::ready() {
    if (const Status store = co_await context_.store.probe(); !store) {
        co_return fail(store.error().in("store"));
    }
    if (const std::string& problem = context_.runs_folder.problem(); !problem.empty()) {
        co_return fail(Error{Errc::unavailable, problem}.in("runs directory"));
    }
    if (const Status scheduler = co_await context_.scheduler.ping(); !scheduler) {
        co_return fail(scheduler.error().in("scheduler"));
    }
    co_return Status{};
}

}  // namespace lockstep
