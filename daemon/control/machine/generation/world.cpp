#include "daemon/control/machine/generation/world.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace lockstep {
namespace {

// Without what each node is told for itself.
wire::World world_of(const Job& job, const AttemptRun& run) {
    const Generation& generation = *job.live_generation();
    wire::World out;
    out.generation = generation.number;
    out.world_size = job.world_size();
    out.local_ranks = job.spec.ranks_per_node();
    out.master_address = generation.master_address;
    out.master_port = generation.master_port;
    out.nodes = generation.nodes;
    out.table = run.generation.table_digest;
    if (out.table.empty()) {
        wire::Table table = table_of(job);
        out.hosts = std::move(table.hosts);
        out.addresses = std::move(table.addresses);
        out.ports = std::move(table.ports);
    }
    out.resume_step = generation.resumed_from_step;
    return out;
}

// Where connections of the generation's ranks may come from; empty if that is not known of all of
// its nodes.
std::vector<std::string> admitted_to(const Generation& generation, const AttemptRun& run) {
    std::set<std::string> out;
    std::size_t bytes = 0;
    const auto take = [&](const std::string& address) {
        bytes += !address.empty() && out.insert(address).second ? address.size() + 3 : 0;
    };
    for (std::int32_t node = 0; node < generation.nodes; ++node) {
        const auto link = run.links.find(generation.slot_of(node));
        if (link == run.links.end() || link->second->join.addresses.empty() ||
            bytes > limits::kAdmittedBytes) {
            return {};
        }
        const auto index = static_cast<std::size_t>(node);
        take(index < generation.addresses.size() ? generation.addresses[index] : "");
        take(link->second->join.address);
        take(link->second->remote());
        std::for_each(link->second->join.addresses.begin(), link->second->join.addresses.end(),
                      take);
    }
    return {out.begin(), out.end()};
}

// The node's own address if it is another one than it gave; "" = that one.
std::string own_address(const Generation& generation, const Agent& link, std::int32_t node_rank) {
    const auto& addresses = generation.addresses;
    const auto index = static_cast<std::size_t>(node_rank);
    return index < addresses.size() && addresses[index] != link.join.address ? addresses[index]
                                                                             : std::string{};
}

// What the node of that rank is told for itself.
void complete(wire::World& told, const Generation& generation, const AttemptRun& run,
              const Agent& link, std::int32_t node_rank) {
    told.node_rank = node_rank;
    told.first_rank = node_rank * told.local_ranks;
    told.address = own_address(generation, link, node_rank);
    told.admitted = node_rank == 0 ? admitted_to(generation, run) : std::vector<std::string>{};
    told.rdma_ports = run.generation.ports_of(link.node_rank);
}

}  // namespace

void send_world(Effects& out, const Job& job, const AttemptRun& run,
                const std::vector<std::int32_t>& slots) {
    wire::World told = world_of(job, run);
    for (std::size_t node = 0; node < slots.size(); ++node) {
        if (const auto link = run.links.find(slots[node]); link != run.links.end()) {
            complete(told, *job.live_generation(), run, *link->second,
                     static_cast<std::int32_t>(node));
            out.send(link->second, told);
        }
    }
}

void send_world_again(Effects& out, const Job& job, const AttemptRun& run, const AgentPtr& link) {
    const Generation* generation = job.live_generation();
    const std::int32_t node_rank =
        generation == nullptr ? -1 : generation->node_rank_of(link->node_rank);
    if (node_rank < 0 || run.stopping || run.generation.abort_sent) {
        return;
    }
    wire::World told = world_of(job, run);
    complete(told, *generation, run, *link, node_rank);
    out.send(link, told);
}

bool send_table(Draft& draft, const AttemptRun& run, const AgentPtr& link,
                const wire::TableRequest& request) {
    if (!is_current(draft.before(), *link, request.generation) || run.generation.table == nullptr) {
        return false;
    }
    draft.at_once.add(effect::SendShared{link, run.generation.table});
    draft.answered = true;
    return true;
}

}  // namespace lockstep
