// The ports a node holds for its ranks: until they start, and again between two generations.
#include "job/agent/node/node.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

}  // namespace

void Node::perform(const node_effect::HoldPorts&) {
    if (const Status held = hold_ports(); !held) {
        ports_problem_ = held.error().message;
        take(node_input::PortsMissing{ports_problem_});
        return;
    }
    ports_problem_.clear();
    const Machine machine = read_machine();
    wire::Join join;
    join.address = address_;
    join.port = port_->number();
    for (const HeldPort& port : rank_ports_) {
        join.ports.push_back(port.number());
    }
    join.cores = machine.cores;
    join.gpus = machine.gpus;
    join.memory_mb = machine.memory_mb;
    join.addresses = own_addresses();
    if (join.addresses.size() > limits::kNodeAddresses) {
        join.addresses.clear();  // some would not be enough
    }
    take(node_input::PortsHeld{std::move(join)});
}

// What a JOIN promises: a port for the master, and one per rank if each has an endpoint.
Status Node::hold_ports() {
    if (!port_ || !port_->held()) {
        auto port = HeldPort::hold(address_);
        if (!port) {
            return fail(port.error());
        }
        port_.emplace(std::move(*port));
    }
    hold_ras_port();
    const bool held = std::all_of(rank_ports_.begin(), rank_ports_.end(),
                                  [](const HeldPort& port) { return port.held(); });
    if (!held) {
        rank_ports_.clear();
    }
    const auto count = needs_endpoints(*spec_) ? spec_->ranks_per_node() : 0;
    while (rank_ports_.size() < static_cast<std::size_t>(count)) {
        auto port = HeldPort::hold(address_);
        if (!port) {
            return fail(port.error());
        }
        rank_ports_.push_back(std::move(*port));
    }
    return {};
}

// NCCL's own default is one port for every job on the machine: whoever is second is not heard. The
// ranks of a node share a socket, but no two jobs do. Without one they go on as NCCL would.
void Node::hold_ras_port() {
    if (spec_->resources.gpus_per_node == 0 || (ras_port_ && ras_port_->held())) {
        return;
    }
    auto port = HeldPort::hold(kLoopback);
    if (port) {
        ras_port_.emplace(std::move(*port));
    } else {
        log::warn("no port for NCCL's RAS", {{"why", port.error().message}});
    }
}

// The daemon knows these numbers; a next generation may be given them again.
void Node::perform(const node_effect::HoldPortsAgain&) {
    const auto again = [](HeldPort& port, const std::string& address) {
        if (auto held = HeldPort::hold(address, port.number()); held && !port.held()) {
            port = std::move(*held);
        }
    };
    if (port_) {
        again(*port_, address_);
    }
    if (ras_port_) {
        again(*ras_port_, kLoopback);
    }
    for (HeldPort& port : rank_ports_) {
        again(port, address_);
    }
}

void Node::release_ports() {
    if (port_) {
        if (world_->first_rank == 0 && port_->number() != world_->master_port) {
            log::warn("the master port of this generation is not held",
                      {{"port", world_->master_port}});
        }
        if (!store_ && !rendezvous_) {
            port_->release();
        }
    }
    if (ras_port_) {
        ras_port_->release();
    }
    for (HeldPort& port : rank_ports_) {
        port.release();
    }
}

// The port was bound on every address before the nodes had found each other, and frameworks that
// serve on it themselves want all of them: so it is each connection that is looked at.
std::unique_ptr<StoreGuard> Node::guard_store() {
    StoreGuard::Options options;
    options.own = own_addresses();
    options.own.push_back(address_);
    options.nodes = world_->admitted;
    const auto nodes = std::max(world_->nodes, static_cast<std::int32_t>(world_->hosts.size()));
    options.nodes_known = nodes <= 1 || !options.nodes.empty();
    options.tell = [this](std::string refused) {
        give_warning(-1, std::move(refused) +
                             ". If that was one of its ranks: with \"environment\": "
                             "{\"TORCHELASTIC_USE_AGENT_STORE\": \"False\"} rank 0 of torch serves "
                             "the store, to everybody");
    };
    return std::make_unique<StoreGuard>(std::move(options));
}

// The store that the ranks' environment tells them of, if it does: their job's own word
// (`environment`) counts. A fresh one, before READY leaves: no key outlives its generation.
Status Node::open_store() {
    store_.reset();
    rendezvous_.reset();
    if (world_->first_rank != 0 || spec_->launch == Launch::node || plans_.empty()) {
        return {};
    }
    const auto told = [&environment = plans_.front().process.environment](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string{} : found->second;
    };
    const bool torch = told("TORCHELASTIC_USE_AGENT_STORE") == "True";
    const bool horovod =
        told("HOROVOD_GLOO_RENDEZVOUS_ADDR") == world_->master_address &&
        told("HOROVOD_GLOO_RENDEZVOUS_PORT") == std::to_string(world_->master_port);
    if (!torch && !horovod) {
        return {};
    }
    if (!port_ || !port_->held() || port_->number() != world_->master_port) {
        return fail(Errc::conflict, "the master port of this generation is not held: " +
                                        std::to_string(world_->master_port));
    }
    if (!torch) {
        const ScopeSizes sizes{
            world_->world_size, world_->local_ranks,
            std::max(world_->nodes, static_cast<std::int32_t>(world_->hosts.size()))};
        HorovodRendezvousCaps caps;
        caps.bytes = store_bytes(world_->world_size);
        caps.transit_bytes = caps.bytes;  // one of the largest values of each rank
        auto rendezvous =
            HorovodRendezvous::listen(tasks_, port_->fd(), sizes, caps, guard_store());
        if (!rendezvous) {
            return fail(rendezvous.error());
        }
        rendezvous_ = std::move(*rendezvous);
        return {};
    }
    auto store =
        TcpStore::listen(tasks_, port_->fd(), store_caps(world_->world_size), guard_store());
    if (!store) {
        return fail(store.error());
    }
    store_ = std::move(*store);
    return {};
}

// Nothing from the daemon is counted on.
Status Node::check_endpoints() const {
    const std::size_t ports = world_->ports.size();
    const auto nodes = std::max(world_->hosts.size(), static_cast<std::size_t>(world_->nodes));
    if (world_->local_ranks < 1 || world_->addresses.size() != (ports == 0 ? 0 : nodes) ||
        ports != (needs_endpoints(*spec_) ? static_cast<std::size_t>(world_->world_size) : 0) ||
        (ports != 0 && nodes * static_cast<std::size_t>(world_->local_ranks) != ports)) {
        return fail(Errc::invalid, "the daemon's world has " + std::to_string(ports) +
                                       " endpoints of ranks, which does not fit");
    }
    for (std::size_t local = 0; ports != 0 && local < rank_ports_.size(); ++local) {
        const std::size_t rank = static_cast<std::size_t>(world_->first_rank) + local;
        if (rank >= ports || world_->ports[rank] != rank_ports_[local].number()) {
            return fail(Errc::conflict, "the endpoint of rank " + std::to_string(rank) +
                                            " is not the port that is held for it");
        }
    }
    return {};
}

}  // namespace lockstep
