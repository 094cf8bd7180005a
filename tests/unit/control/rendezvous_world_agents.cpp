// An agent of a simulated world.
#include "tests/unit/control/rendezvous_world.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::simulation {

void World::say_join(std::int32_t slot) {
    const Node& self = node(slot);
    say(slot, Word::join,
        self.phase == Node::Phase::waiting ? self.generation : self.generation - 1);
}

void World::prepare_ranks(std::int32_t slot, std::int32_t generation, std::int32_t rank) {
    Node& self = node(slot);
    if (generation != self.generation) {
        self.started_here = false;
        self.join_wanted = false;
    }
    self.awaiting = 0;
    self.generation = generation;
    self.rank = rank;
    self.phase = Node::Phase::ready;
    self.readied = generation;
    say(slot, Word::ready, self.generation);
}

void World::obey(std::int32_t slot, const Message& message) {
    Node& self = node(slot);
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
                (message.generation == self.generation && self.phase != Node::Phase::ready)) {
                break;
            }
            if (pick(2) == 0) {
                self.awaiting = message.generation;
                self.awaiting_rank = message.rank;
                say(slot, Word::table_please, message.generation);
                break;
            }
            prepare_ranks(slot, message.generation, message.rank);
            break;
        case Word::table:
            if (self.awaiting == message.generation && !self.leaving) {
                prepare_ranks(slot, message.generation, self.awaiting_rank);
            }
            break;
        case Word::start:
            if (message.generation == self.generation && self.phase == Node::Phase::ready) {
                self.phase = Node::Phase::running;
                self.started_here = true;
                self.started = self.generation;
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
            self.phase = Node::Phase::waiting;
            if (!self.leaving) {
                say_join(slot);
            }
            break;
        case Word::acknowledged:
            self.exits_unsaid = false;
            break;
        case Word::fenced:
            self.ranks = false;
            self.alive = false;
            drop(slot);
            break;
        case Word::closed:
            drop(slot);
            break;
        default:
            wrong_ = "the daemon said what only an agent says";
    }
}

void World::ranks_end(std::int32_t slot) {
    Node& self = node(slot);
    self.ranks = false;
    self.phase = Node::Phase::waiting;
    self.exits_unsaid = true;
    if (self.link) {
        say(slot, Word::exited, self.generation);
        if (std::exchange(self.join_wanted, false) && !self.leaving) {
            say_join(slot);
        }
    }
}

void World::drop(std::int32_t slot) {
    Node& self = node(slot);
    const AgentPtr link = std::exchange(self.link, nullptr);
    self.out.clear();
    self.in.clear();
    if (link) {
        feed(AgentGoneInput{link});
    }
}

void World::connect(std::int32_t slot) {
    node(slot).link = std::make_shared<Agent>(1, "127.0.0.1");
    node(slot).link->last_heard = steady_;
    say(slot, Word::hello, node(slot).generation);
}

// What it has said is still read; its end is noticed late, or with the next one's HELLO.
void World::leave_half_open(std::int32_t slot) {
    Node& self = node(slot);
    if (!self.link || self.leaving) {
        return;
    }
    half_open_.push_back({std::exchange(self.link, nullptr), slot, std::move(self.out)});
    self.out.clear();
    self.in.clear();
}

void World::hear_half_open() {
    if (half_open_.empty()) {
        return;
    }
    HalfOpen& first = half_open_.front();
    if (first.said.empty()) {
        const AgentPtr link = first.link;
        half_open_.pop_front();
        feed(AgentGoneInput{link});
        return;
    }
    const HalfOpen one{first.link, first.slot, {first.said.front()}};
    first.said.pop_front();
    hear(one.link, one.slot, one.said.front());
}

void World::send_stranger(std::int32_t slot) {
    const Attempt& attempt = *job().attempt();
    const bool taken = attempt.claims.contains(slot);
    const std::uint32_t kind = pick(4);
    if (strangers_.size() >= 4 || !taken || (kind == 0 && elastic())) {
        return;
    }
    const AgentPtr link = std::make_shared<Agent>(kind == 2 ? 2 : kind == 3 ? 0 : 1, "127.0.0.9");
    link->last_heard = steady_;
    link->node_rank = slot;
    strangers_.push_back(link);
    const auto say = [&](wire::AgentMessage words) { feed(AgentInput{link, std::move(words)}); };
    wire::Hello hello;
    hello.node_rank = slot;
    hello.node = "stranger";
    hello.incarnation = "s" + std::to_string(++strangers_sent_);
    hello.allocation = kind == 1 ? "local-2" : "local-1";
    say(std::move(hello));
    const std::int32_t newest = job().generation() == nullptr ? 0 : job().generation()->number;
    wire::Join join;
    join.address = "127.0.0.9";
    join.port = 5000;
    join.generation = newest;
    say(std::move(join));
    say(wire::Ready{newest});
    wire::Started started;
    started.generation = newest;
    say(std::move(started));
    wire::Exited exited;
    exited.event = ++event_;
    exited.generation = newest;
    exited.rank =
        std::max(job().generation() == nullptr ? 0 : job().generation()->node_rank_of(slot), 0);
    exited.exit_code = 1;
    exited.time = wall_;
    say(std::move(exited));
    feed(AgentGoneInput{link});
}

// Killed, and started again by its keeper once nothing of it lives.
void World::start_again(std::int32_t slot) {
    drop(slot);
    Node next;
    next.incarnation = node(slot).incarnation + 1;
    next.readied = node(slot).readied;  // it was said
    next.started = node(slot).started;
    node(slot) = std::move(next);
}

}  // namespace lockstep::simulation
