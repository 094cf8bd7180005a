// A million random interleavings of the meeting of nodes: connections drop with what was in flight,
// agents die, freeze, leave and come back, ranks fail, the coordinator is killed between any two
// steps, or stopped.
// In half of the worlds the job is elastic: it goes on with fewer nodes, nodes that were given up
// call in again, agents are started again by their keepers, and generations grow. What must hold:
// ranks of two generations never live at a time on nodes that count; and once the accidents stop,
// every rank runs, on as many nodes as can be had, or too few nodes are left.
#include "daemon/control/machine/rendezvous.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/unit/control/rendezvous_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace lockstep::simulation {

void World::run(int steps) {
    for (int i = 0; i < steps && wrong_.empty(); ++i) {
        accident();
        act();
        check();
    }
}

// No more accidents: everything that can happen does, many times.
void World::settle() {
    accidents_ = false;
    for (Agent& agent : agents_) {
        agent.frozen = false;
    }
    for (int i = 0; i < 4000 && wrong_.empty() && !settled(); ++i) {
        act();
        check();
    }
    if (wrong_.empty() && !settled() && usable() >= least_) {
        wrong_ = "stuck: " + describe();
    }
}

std::int32_t World::usable() const {
    std::int32_t count = 0;
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        const Agent& self = agents_[static_cast<std::size_t>(slot)];
        count += (!lost(slot) || may_return(slot)) && self.alive && !self.leaving ? 1 : 0;
    }
    return count;
}

std::int32_t World::node_rank(std::int32_t slot) const {
    const auto found = std::find(disk_.members.begin(), disk_.members.end(), slot);
    return disk_.generation == 0 || found == disk_.members.end()
               ? -1
               : static_cast<std::int32_t>(found - disk_.members.begin());
}

void World::accident() {
    const std::int32_t slot = static_cast<std::int32_t>(pick(kSlots));
    Agent& self = agent(slot);
    switch (pick(36)) {
        case 0:
            drop(slot);
            break;
        case 1:
        case 6:
        case 7:
            if (self.ranks && !self.frozen) {
                ranks_end(slot);  // one failed, the node's others were stopped
            }
            break;
        case 2:  // killed between any two steps
            kill();
            break;
        case 3:
            self.frozen = self.alive && !self.frozen;
            break;
        case 4:
            if (self.frozen && self.alive && (spare_waits() || elastic()) && pick(2) == 0) {
                give_up(slot, true);
            }
            break;
        case 10:
            if (elastic() && self.alive && self.incarnation < 1 && pick(8) == 0) {
                start_again(slot);
            }
            break;
        case 11:
            grow();
            break;
        case 8:  // SIGTERM
            if (self.alive && !self.frozen && pick(64) == 0) {
                self.leaving = true;
                self.ending = true;
                self.awaiting = 0;
                if (self.phase == Agent::Phase::ready) {
                    self.phase = Agent::Phase::waiting;
                }
            }
            break;
        case 9:  // the coordinator is stopped: DRAIN goes behind what was said before it
            if (pick(16) != 0) {
                break;
            }
            for (std::int32_t other = 0; other < kSlots; ++other) {
                while (!agent(other).frozen && !agent(other).in.empty()) {
                    const Message message = agent(other).in.front();
                    agent(other).in.pop_front();
                    obey(other, message);
                }
                drop(other);
            }
            boot();
            break;
        case 5:
            if (self.alive && pick(16) == 0) {
                self.alive = false;
                self.ranks = false;
                drop(slot);
            }
            break;
        default:
            break;
    }
}

bool World::spare_waits() const {
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        if (met_.is_spare(slot)) {
            return true;
        }
    }
    return false;
}

void World::act() {
    const std::int32_t slot = static_cast<std::int32_t>(pick(kSlots));
    Agent& self = agent(slot);
    if (elastic() && pick(16) == 0) {  // the coordinator's tick
        form();
        accidents_ ? void() : grow();
    }
    if (!self.alive) {
        if (left_[static_cast<std::size_t>(slot)] || pick(8) == 0) {
            give_up(slot);  // it said that it goes, or is not heard any more
        }
        return;
    }
    if (self.connected && !self.out.empty() && pick(2) == 0) {
        const Message message = self.out.front();
        self.out.pop_front();
        hear(slot, message);
        return;
    }
    if (self.frozen) {
        return;
    }
    if (!self.connected) {
        connect(slot);
    } else if (!self.in.empty()) {
        const Message message = self.in.front();
        self.in.pop_front();
        obey(slot, message);
    } else if (self.ranks && self.ending) {
        ranks_end(slot);
    } else if (self.leaving && self.out.empty()) {
        // What it said before has been heard. BYE may be lost with the connection: it does not
        // wait for its ACK for ever.
        if (!accidents_ || pick(4) != 0) {
            hear(slot, {Word::bye, 0});
        }
        self.alive = false;
        drop(slot);
    }
}

void World::check() {
    std::int32_t generation = 0;
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        const Agent& self = agents_[static_cast<std::size_t>(slot)];
        if (!self.ranks || lost(slot)) {
            continue;
        }
        if (generation != 0 && self.generation != generation) {
            wrong_ = "two generations live: " + describe();
        }
        generation = self.generation;
        if (self.generation > disk_.generation) {
            wrong_ = "ranks of a generation that is not on disk: " + describe();
        }
        if (self.generation == disk_.generation && !disk_.released) {
            wrong_ = "ranks that nobody has released: " + describe();
        }
    }
}

bool World::settled() const {
    return all_run() && (!elastic() || static_cast<std::int32_t>(disk_.members.size()) ==
                                           std::min(usable(), kSimulatedNodes));
}

bool World::all_run() const {
    return disk_.live && !disk_.failed &&
           std::all_of(disk_.members.begin(), disk_.members.end(), [this](std::int32_t slot) {
               const Agent& self = agents_[static_cast<std::size_t>(slot)];
               return self.alive && self.ranks && self.generation == disk_.generation;
           });
}

std::string World::describe() const {
    std::string out = "generation " + std::to_string(disk_.generation) +
                      (disk_.live ? " live" : " over") + (disk_.failed ? " failed" : "");
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        const Agent& self = agents_[static_cast<std::size_t>(slot)];
        out += "; " + std::to_string(slot) + (lost(slot) ? " lost" : "") +
               (self.alive ? "" : " dead") + (self.connected ? "" : " away") +
               (self.ranks ? " ranks" : "") + " g" + std::to_string(self.generation) + " p" +
               std::to_string(static_cast<int>(self.phase)) + " c" +
               std::to_string(static_cast<int>(met_.phase(slot)));
    }
    return out;
}

namespace {

constexpr std::uint32_t kSchedules = test::kSanitized ? 5'000 : 1'000'000;

TEST(RendezvousSimulation, NoInterleavingMixesGenerationsOrWaitsForEver) {
    std::uint64_t generations = 0;
    std::uint64_t shrunk = 0;
    std::uint64_t grown = 0;
    for (std::uint32_t seed = 1; seed <= kSchedules; ++seed) {
        World world{seed, seed % 2 == 0};
        world.run(static_cast<int>(80 + seed % 240));
        world.settle();
        ASSERT_EQ(world.wrong(), "") << "seed " << seed;
        generations += static_cast<std::uint64_t>(world.generations());
        shrunk += static_cast<std::uint64_t>(world.shrunk());
        grown += static_cast<std::uint64_t>(world.grown());
    }
    // The accidents do happen: on average there is more than one generation in a world.
    EXPECT_GT(generations, kSchedules + kSchedules / 4);
    EXPECT_GT(shrunk, kSchedules / 20);
    EXPECT_GT(grown, kSchedules / 50);
}

}  // namespace
}  // namespace lockstep::simulation
