// An agent of a simulated world.
#include "tests/unit/control/rendezvous_world.hpp"

#include <utility>

namespace lockstep::simulation {

void World::say_join(std::int32_t slot) {
    const Agent& self = agent(slot);
    say(slot, Word::join,
        self.phase == Agent::Phase::waiting ? self.generation : self.generation - 1);
}

void World::prepare(std::int32_t slot, std::int32_t generation) {
    Agent& self = agent(slot);
    if (generation != self.generation) {
        self.started_here = false;
        self.join_wanted = false;
    }
    self.awaiting = 0;
    self.generation = generation;
    self.phase = Agent::Phase::ready;
    say(slot, Word::ready, self.generation);
}

void World::obey(std::int32_t slot, const Message& message) {
    Agent& self = agent(slot);
    switch (message.word) {
        case Word::welcome:
            if (self.exits_unsaid) {
                say(slot, Word::exited, self.generation);
            }
            if (self.started_here && message.generation == self.generation) {
                say(slot, Word::started, self.generation);
            } else if (!self.leaving) {
                say_join(slot);
            }
            break;
        case Word::world:
            if (self.leaving || message.generation < self.generation || self.ranks ||
                (message.generation == self.generation && self.phase != Agent::Phase::ready)) {
                break;
            }
            if (pick(2) == 0) {
                self.awaiting = message.generation;
                say(slot, Word::table_please, message.generation);
                break;
            }
            prepare(slot, message.generation);
            break;
        case Word::table:
            if (self.awaiting == message.generation && !self.leaving) {
                prepare(slot, message.generation);
            }
            break;
        case Word::start:
            if (message.generation == self.generation && self.phase == Agent::Phase::ready) {
                self.phase = Agent::Phase::running;
                self.started_here = true;
                self.ranks = true;
                self.ending = false;
                say(slot, Word::started, self.generation);
            }
            break;
        case Word::abort:
            if (self.awaiting == message.generation) {
                self.awaiting = 0;
                if (message.generation != self.generation) {
                    if (!self.leaving) {
                        say_join(slot);
                    }
                    break;
                }
            }
            if (message.generation != self.generation) {
                break;
            }
            if (self.ranks) {
                self.join_wanted = true;
                self.ending = true;
                break;
            }
            self.phase = Agent::Phase::waiting;
            if (!self.leaving) {
                say_join(slot);
            }
            break;
        case Word::fenced:
            self.ranks = false;
            self.alive = false;
            drop(slot);
            break;
        default:
            wrong_ = "the daemon said what only an agent says";
    }
}

void World::ranks_end(std::int32_t slot) {
    Agent& self = agent(slot);
    self.ranks = false;
    self.phase = Agent::Phase::waiting;
    self.exits_unsaid = true;
    if (self.connected) {
        say(slot, Word::exited, self.generation);
        if (std::exchange(self.join_wanted, false) && !self.leaving) {
            say_join(slot);
        }
    }
}

void World::drop(std::int32_t slot) {
    Agent& self = agent(slot);
    if (std::exchange(self.connected, false)) {
        met_.disconnected(slot);
    }
    self.out.clear();
    self.in.clear();
}

void World::connect(std::int32_t slot) {
    Agent& self = agent(slot);
    self.connected = true;
    // Live ranks say their generation to be counted; one that is lost says it to be told to end
    // them, or what is prepared.
    const bool late =
        lost(slot) || disk_.incarnation[static_cast<std::size_t>(slot)] != self.incarnation;
    say(slot, Word::hello, self.ranks || late ? self.generation : 0);
    self.out.back().late = late && self.generation > 0;
}

// Killed, and started again by its keeper once nothing of it lives.
void World::start_again(std::int32_t slot) {
    drop(slot);
    const std::int32_t next = agent(slot).incarnation + 1;
    agent(slot) = Agent{};
    agent(slot).incarnation = next;
}

}  // namespace lockstep::simulation
