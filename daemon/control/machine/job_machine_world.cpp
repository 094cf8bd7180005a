// What the agents of a generation are told of it: WORLD and TABLE.
#include "daemon/control/machine/job_machine.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {

void JobMachine::become(const after::SendWorld& one, Effects& out, const Surroundings&) {
    const Generation* generation = job_.live_generation();
    const std::int32_t node_rank =
        generation == nullptr ? -1 : generation->node_rank_of(one.link->node_rank);
    if (node_rank < 0 || run_.stopping || run_.generation.abort_sent) {
        return;
    }
    wire::World told = world();
    told.node_rank = node_rank;
    told.first_rank = node_rank * told.local_ranks;
    told.address = own_address(*one.link, node_rank);
    if (node_rank == 0) {
        told.admitted = admitted();
    }
    told.rdma_ports = run_.generation.ports_of(one.link->node_rank);
    out.send(one.link, told);
}

// Without what each node is told for itself.
wire::World JobMachine::world() const {
    const Generation& generation = *job_.live_generation();
    wire::World out;
    out.generation = generation.number;
    out.world_size = job_.world_size();
    out.local_ranks = job_.spec.ranks_per_node();
    out.master_address = generation.master_address;
    out.master_port = generation.master_port;
    out.nodes = generation.nodes;
    out.table = run_.generation.table_digest;
    if (out.table.empty()) {
        wire::Table table = table_of(job_);
        out.hosts = std::move(table.hosts);
        out.addresses = std::move(table.addresses);
        out.ports = std::move(table.ports);
    }
    out.resume_step = generation.resumed_from_step;
    return out;
}

// Where connections of the generation's ranks may come from; empty if that is not known of all of
// its nodes.
std::vector<std::string> JobMachine::admitted() const {
    const Generation& generation = *job_.live_generation();
    std::set<std::string> out;
    std::size_t bytes = 0;
    const auto take = [&](const std::string& address) {
        bytes += !address.empty() && out.insert(address).second ? address.size() + 3 : 0;
    };
    for (std::int32_t node = 0; node < generation.nodes; ++node) {
        const auto link = run_.links.find(generation.slot_of(node));
        if (link == run_.links.end() || link->second->join.addresses.empty() ||
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

void JobMachine::send_table(Draft& draft, const AgentPtr& link, const wire::TableRequest& request) {
    if (is_current(job_, *link, request.generation) && run_.generation.table != nullptr) {
        draft.at_once.add(effect::SendShared{link, run_.generation.table});
        draft.answered = true;
    } else {
        abort_if_over(draft, link, request.generation);
    }
}

// The node's own address if it is another one than it gave; "" = that one.
std::string JobMachine::own_address(const Agent& link, std::int32_t node_rank) const {
    const auto& addresses = job_.live_generation()->addresses;
    const auto index = static_cast<std::size_t>(node_rank);
    return index < addresses.size() && addresses[index] != link.join.address ? addresses[index]
                                                                             : std::string{};
}

}  // namespace lockstep
