#include "job/agent/node/held_ports.hpp"

#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

void hold_port_again(HeldPort& port, const std::string& address) {
    if (auto held = HeldPort::hold(address, port.number()); held && !port.held()) {
        port = std::move(*held);
    }
}

}  // namespace

Status HeldPorts::hold(const std::string& address, const Wanted& wanted) {
    Status held = hold_wanted(address, wanted);
    problem_ = held ? std::string{} : held.error().message;
    return held;
}

Status HeldPorts::hold_wanted(const std::string& address, const Wanted& wanted) {
    if (!master_ || !master_->held()) {
        auto port = HeldPort::hold(address);
        LOCKSTEP_TRY(port);
        master_.emplace(std::move(*port));
    }
    if (wanted.ras) {
        hold_ras();
    }
    const bool held =
        std::all_of(ranks_.begin(), ranks_.end(), [](const HeldPort& port) { return port.held(); });
    if (!held) {
        ranks_.clear();
    }
    while (ranks_.size() < static_cast<std::size_t>(wanted.ranks)) {
        auto port = HeldPort::hold(address);
        LOCKSTEP_TRY(port);
        ranks_.push_back(std::move(*port));
    }
    return {};
}

// NCCL's own default is one port for every job on the machine: whoever is second is not heard. The
// ranks of a node share a socket, but no two jobs do.
void HeldPorts::hold_ras() {
    if (ras_ && ras_->held()) {
        return;
    }
    auto port = HeldPort::hold(kLoopback);
    if (port) {
        ras_.emplace(std::move(*port));
    } else {
        log::warn("no port for NCCL's RAS", {{"why", port.error().message}});
    }
}

void HeldPorts::hold_again(const std::string& address) {
    if (master_) {
        hold_port_again(*master_, address);
    }
    if (ras_) {
        hold_port_again(*ras_, kLoopback);
    }
    for (HeldPort& port : ranks_) {
        hold_port_again(port, address);
    }
}

void HeldPorts::release(const wire::World& world, bool served) {
    if (master_) {
        if (world.first_rank == 0 && master_->number() != world.master_port) {
            log::warn("the master port of this generation is not held",
                      {{"port", world.master_port}});
        }
        if (!served) {
            master_->release();
        }
    }
    if (ras_) {
        ras_->release();
    }
    for (HeldPort& port : ranks_) {
        port.release();
    }
}

std::vector<std::int32_t> HeldPorts::ranks() const {
    std::vector<std::int32_t> out;
    for (const HeldPort& port : ranks_) {
        out.push_back(port.number());
    }
    return out;
}

Status HeldPorts::check(const wire::World& world, bool endpoints) const {
    const std::size_t ports = world.ports.size();
    const auto nodes = std::max(world.hosts.size(), static_cast<std::size_t>(world.nodes));
    if (world.local_ranks < 1 || world.addresses.size() != (ports == 0 ? 0 : nodes) ||
        ports != (endpoints ? static_cast<std::size_t>(world.world_size) : 0) ||
        (ports != 0 && nodes * static_cast<std::size_t>(world.local_ranks) != ports)) {
        return fail(Errc::invalid, "the daemon's world has " + std::to_string(ports) +
                                       " endpoints of ranks, which does not fit");
    }
    for (std::size_t local = 0; ports != 0 && local < ranks_.size(); ++local) {
        const std::size_t rank = static_cast<std::size_t>(world.first_rank) + local;
        if (rank >= ports || world.ports[rank] != ranks_[local].number()) {
            return fail(Errc::conflict, "the endpoint of rank " + std::to_string(rank) +
                                            " is not the port that is held for it");
        }
    }
    return {};
}

}  // namespace lockstep
