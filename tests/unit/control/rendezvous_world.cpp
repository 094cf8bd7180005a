// The coordinator of a simulated world.
#include "tests/unit/control/rendezvous_world.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::simulation {

void World::boot() {
    met_ = Rendezvous{kSimulatedNodes, kSlots, least_};
    left_.fill(false);
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        if (lost(slot)) {
            met_.lost(slot);
        }
    }
    if (disk_.live) {
        met_.fixed(disk_.generation, disk_.members);
    }
}

void World::send(std::int32_t slot, Word word, std::int32_t generation) {
    if (agent(slot).connected) {
        agent(slot).in.push_back({word, generation});
    }
}

// What is in flight is gone, and who had said BYE.
void World::kill() {
    for (std::int32_t other = 0; other < kSlots; ++other) {
        drop(other);
    }
    boot();
}

void World::hear(std::int32_t slot, const Message& message) {
    const auto index = static_cast<std::size_t>(slot);
    if (message.word == Word::hello && elastic() && !lost(slot) &&
        message.incarnation != disk_.incarnation[index]) {
        give_up(slot, true);  // its keeper has started another agent: the one before is dead
    }
    if (lost(slot) && may_return(slot)) {
        hear_lost(slot, message);
        return;
    }
    if (lost(slot)) {
        send(slot, Word::fenced, 0);
        return;
    }
    switch (message.word) {
        case Word::hello:
            met_.connected(slot);
            if (message.generation != 0) {
                met_.started(slot, message.generation);
                start();
            }
            send(slot, Word::welcome, disk_.generation);
            if (disk_.failed) {
                send(slot, Word::abort, disk_.generation);
            }
            break;
        case Word::join:
            if (met_.joined(slot, message.generation)) {
                if (!disk_.failed) {
                    send(slot, Word::world, disk_.generation);
                }
            }
            end_if_over();
            form();
            break;
        case Word::ready:
            if (!abort_if_over(slot, message.generation) && met_.ready(slot, message.generation)) {
                start();
            }
            break;
        case Word::started:
            if (!abort_if_over(slot, message.generation)) {
                met_.started(slot, message.generation);
                start();
            }
            break;
        case Word::exited:
            take_exit(slot, message.generation);
            break;
        case Word::table_please:
            if (disk_.live && message.generation == disk_.generation) {
                send(slot, Word::table, message.generation);
            } else {
                abort_if_over(slot, message.generation);
            }
            break;
        case Word::bye:
            if (agent(slot).ranks) {
                wrong_ = "an agent left live ranks: " + describe();
            }
            met_.disconnected(slot);
            left_[static_cast<std::size_t>(slot)] = true;  // its loss is written down later
            break;
        default:
            wrong_ = "an agent said what only the daemon says";
    }
}

// As job_actor_elastic.cpp does it.
void World::hear_lost(std::int32_t slot, const Message& message) {
    const auto index = static_cast<std::size_t>(slot);
    if (message.word == Word::hello) {
        met_.connected(slot);
        hello_of_[index] = message.late ? message.generation : 0;
        send(slot, Word::welcome, disk_.generation);
        if (message.late) {
            send(slot, Word::abort, message.generation);
        }
    } else if (message.word == Word::exited) {
        agent(slot).exits_unsaid = false;
    } else if (message.word == Word::bye) {
        met_.disconnected(slot);
    } else if (message.word == Word::join && message.generation >= hello_of_[index]) {
        disk_.lost[index] = false;
        disk_.absent[index] = false;
        ++disk_.returns[index];
        disk_.incarnation[index] = message.incarnation;
        if (accidents_ && pick(16) == 0) {
            kill();  // it is on disk, and nothing more
            return;
        }
        met_.returned(slot);
        hear(slot, message);
    }
}

bool World::abort_if_over(std::int32_t slot, std::int32_t generation) {
    const bool over =
        generation < disk_.generation || (generation == disk_.generation && !disk_.live);
    if (over) {
        send(slot, Word::abort, generation);
    }
    return over;
}

void World::start() {
    if (!met_.all_ready() || disk_.failed) {
        return;
    }
    if (!std::exchange(disk_.released, true) && accidents_ && pick(8) == 0) {
        kill();  // it is on disk, and nobody has heard it
        return;
    }
    for (const std::int32_t slot : disk_.members) {
        if (met_.is_member(slot) && met_.phase(slot) == Rendezvous::Phase::ready) {
            send(slot, Word::start, disk_.generation);
        }
    }
}

void World::take_exit(std::int32_t slot, std::int32_t generation) {
    agent(slot).exits_unsaid = false;  // acknowledged
    const std::int32_t node = node_rank(slot);
    if (disk_.live && generation == disk_.generation && node >= 0) {
        disk_.ended[static_cast<std::size_t>(node)] = true;
        fail();
    }
}

void World::fail() {
    disk_.failed = true;
    for (const std::int32_t slot : disk_.members) {
        send(slot, Word::abort, disk_.generation);
    }
    end_if_over();
}

// Nodes on which no rank was started have no end to report: their JOIN or their loss says it.
void World::end_if_over() {
    if (!disk_.live || !disk_.failed) {
        return;
    }
    for (std::size_t node = 0; node < disk_.members.size(); ++node) {
        const std::int32_t slot = disk_.members[node];
        if (!lost(slot) && !disk_.ended[node] && met_.phase(slot) != Rendezvous::Phase::joined) {
            return;
        }
    }
    disk_.live = false;
    disk_.failed = false;
    form();  // in the same append, as job_actor_recovery.cpp does it
    if (!disk_.live) {
        met_.over();
    }
}

void World::form() {
    if (disk_.live) {
        return;
    }
    const std::vector<std::int32_t> before = disk_.members;
    const auto members = met_.next(before, disk_.generation);
    if (!members || waits_for_more(*members)) {
        return;
    }
    shrunk_ += members->size() < before.size() ? 1 : 0;
    grown_ += !before.empty() && members->size() > before.size() ? 1 : 0;
    for (std::size_t node = 0; node < std::min(before.size(), members->size()); ++node) {
        if (members->size() >= before.size() && !lost(before[node]) &&
            (*members)[node] != before[node]) {
            wrong_ = "ranks were renumbered without need: " + describe();
        }
    }
    ++disk_.generation;
    disk_.live = true;
    disk_.released = false;
    disk_.failed = false;
    disk_.members = *members;
    disk_.ended.assign(members->size(), false);
    met_.fixed(disk_.generation, *members);
    for (const std::int32_t slot : *members) {
        if (lost(slot)) {
            wrong_ = "a lost node is in a generation";
        }
        send(slot, Word::world, disk_.generation);
    }
}

// Whether more are on their way is a matter of patience, which is over at some time.
bool World::waits_for_more(const std::vector<std::int32_t>& members) {
    if (members.size() == kSimulatedNodes) {
        return false;
    }
    const bool late = disk_.generation == 0 ? !met_.everybody_joined() : somebody_comes();
    return late && pick(16) != 0;
}

bool World::somebody_comes() const {
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        if (lost(slot) && may_return(slot) && agents_[static_cast<std::size_t>(slot)].connected) {
            return true;
        }
    }
    return false;
}

// The ranks are started again because there are more nodes.
void World::grow() {
    if (elastic() && all_run() && disk_.members.size() < kSimulatedNodes && spare_waits()) {
        fail();
    }
}

// `silent`: it may have ranks, and come back; else it is fenced.
void World::give_up(std::int32_t slot, bool silent) {
    if (lost(slot)) {
        return;
    }
    const auto index = static_cast<std::size_t>(slot);
    disk_.lost[index] = true;
    disk_.absent[index] = silent && elastic();
    met_.lost(slot);
    if (disk_.absent[index]) {
        if (agent(slot).incarnation == disk_.incarnation[index]) {
            drop(slot);
        }
    } else {
        send(slot, Word::fenced, 0);
    }
    if (disk_.live && node_rank(slot) >= 0) {
        fail();
    }
    form();
}

}  // namespace lockstep::simulation
