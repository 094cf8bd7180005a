#include "daemon/control/machine/rendezvous.hpp"

#include <algorithm>

namespace lockstep {

Rendezvous::Rendezvous(std::int32_t nodes, std::int32_t slots, std::int32_t least)
    : nodes_(nodes),
      least_(least > 0 ? std::min(least, nodes) : nodes),
      members_(nodes),
      slots_(static_cast<std::size_t>(std::max(nodes, slots))) {}

void Rendezvous::count(const Node& node, std::int32_t more) {
    if (node.lost) {
        return;
    }
    if (node.phase == Phase::joined) {
        joined_ += more;
    } else if (live_ != 0 && node.generation == live_ && node.phase == Phase::ready) {
        ready_ += more;
    } else if (live_ != 0 && node.generation == live_ && node.phase == Phase::started) {
        started_ += more;
    }
}

void Rendezvous::move(Node& node, Phase phase, std::int32_t generation) {
    count(node, -1);
    node.phase = phase;
    node.generation = generation;
    count(node, 1);
}

void Rendezvous::fixed(std::int32_t generation, const std::vector<std::int32_t>& members) {
    live_ = generation;
    ready_ = 0;
    started_ = 0;
    members_ = members.empty() ? nodes_ : static_cast<std::int32_t>(members.size());
    for (std::int32_t rank = 0; rank < members_; ++rank) {
        at(members.empty() ? rank : members[static_cast<std::size_t>(rank)]).member_of = generation;
    }
}

void Rendezvous::lost(std::int32_t slot) {
    Node& node = at(slot);
    count(node, -1);
    node.lost = true;
}

void Rendezvous::returned(std::int32_t slot) {
    Node& node = at(slot);
    node.lost = false;
    node.phase = Phase::connected;
    node.generation = 0;
}

void Rendezvous::connected(std::int32_t slot) {
    move(at(slot), Phase::connected, 0);
}

void Rendezvous::disconnected(std::int32_t slot) {
    move(at(slot), Phase::away, 0);
}

bool Rendezvous::joined(std::int32_t slot, std::int32_t left) {
    Node& node = at(slot);
    const bool further = node.phase == Phase::ready || node.phase == Phase::started;
    if (further && live_ != 0 && node.generation == live_ && left < live_) {
        return false;
    }
    move(node, Phase::joined, 0);
    return is_member(slot) && left < live_;
}

bool Rendezvous::ready(std::int32_t slot, std::int32_t generation) {
    if (!is_member(slot) || generation != live_) {
        return false;
    }
    move(at(slot), Phase::ready, generation);
    return true;
}

bool Rendezvous::started(std::int32_t slot, std::int32_t generation) {
    if (!is_member(slot) || generation != live_) {
        return false;
    }
    move(at(slot), Phase::started, generation);
    return true;
}

bool Rendezvous::is_member(std::int32_t slot) const {
    return live_ != 0 && at(slot).member_of == live_ && !at(slot).lost;
}

bool Rendezvous::is_spare(std::int32_t slot) const {
    const Node& node = at(slot);
    return node.phase == Phase::joined && !node.lost && (live_ == 0 || node.member_of != live_);
}

bool Rendezvous::everybody_joined() const {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const Node& node) { return node.lost || node.phase == Phase::joined; });
}

}  // namespace lockstep
