// What must hold in a simulated world, whatever happens in it: looked at after every step, when
// events have become durable, and when the coordinator says something.
#include "tests/unit/control/rendezvous_world.hpp"

#include <algorithm>

namespace lockstep::simulation {
namespace {

// A key's value, in base 64, says which generation's it is.
std::string value_of(std::int32_t generation) {
    return {'A', 'A', 'A', static_cast<char>('A' + generation % 26)};
}

constexpr std::uint64_t kRequestsOfAGeneration = 1'000'000;

}  // namespace

std::string digest_of(std::int32_t generation) {
    return "t" + std::to_string(generation);
}

std::string host_of(std::int32_t generation) {
    return "host-" + std::to_string(generation);
}

std::vector<std::int32_t> World::members() const {
    std::vector<std::int32_t> out;
    for (std::int32_t node = 0; job().generation() != nullptr && node < job().nodes(); ++node) {
        out.push_back(job().generation()->slot_of(node));
    }
    return out;
}

std::optional<std::int32_t> World::slot_at(const AgentPtr& link) const {
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        if (link != nullptr && node(slot).link == link) {
            return slot;
        }
    }
    return std::nullopt;
}

bool World::is_stranger(const AgentPtr& link) const {
    return std::find(strangers_.begin(), strangers_.end(), link) != strangers_.end();
}

// Ranks of that generation, or START on its way to them, on a node that counts.
bool World::lives(std::int32_t slot, std::int32_t generation) const {
    const Node& self = node(slot);
    const bool on_its_way = std::any_of(self.in.begin(), self.in.end(), [&](const FromDaemon& one) {
        const auto* start = one ? std::get_if<wire::Start>(&*one) : nullptr;
        return start != nullptr && start->generation == generation;
    });
    return !lost(slot) && ((self.ranks && self.generation == generation) ||
                           (on_its_way && self.prepared == generation));
}

void World::check() {
    const Generation* newest = job().generation();
    const std::int32_t known = newest == nullptr ? 0 : newest->number;
    std::int32_t generation = 0;
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        const Node& self = node(slot);
        if (!self.ranks || lost(slot)) {
            continue;
        }
        if (generation != 0 && self.generation != generation) {
            wrong_ = "two generations live: " + describe();
        }
        generation = self.generation;
        if (self.generation > known) {
            wrong_ = "ranks of a generation that is not on disk: " + describe();
        }
        if (self.generation == known && newest->released_at == 0) {
            wrong_ = "ranks that nobody has released: " + describe();
        }
    }
    for (const auto& [slot, link] : machine_->run().links) {
        if (is_stranger(link)) {
            wrong_ = "a stranger has a node: " + describe();
        }
    }
}

void World::check_stored(const std::vector<Event>& events, const std::vector<std::int32_t>& before,
                         std::int32_t generations_before) {
    const std::vector<std::int32_t> now = members();
    std::set<std::int32_t> lost_then = lost_before_;
    for (const Event& one : events) {
        if (const auto* fault = std::get_if<event::FaultSeen>(&one.data)) {
            lost_then.insert(fault->slot);
        } else if (std::holds_alternative<event::GenerationStarted>(one.data)) {
            check_places(before, lost_then);
        } else if (const auto* ended = std::get_if<event::RankExited>(&one.data)) {
            const auto& whose = generations() == generations_before ? now : before;
            const auto place = static_cast<std::size_t>(ended->rank);
            if (place >= whose.size() || lives(whose[place], ended->generation)) {
                wrong_ = "a rank that lives is told to have ended: " + describe();
            }
        } else if (const auto* released = std::get_if<event::RanksReleased>(&one.data)) {
            for (const std::int32_t slot : now) {
                if (!given_up_.contains(slot) && node(slot).readied < released->generation) {
                    wrong_ = "START before every node is ready: " + describe();
                }
            }
        } else if (const auto* all = std::get_if<event::RanksStarted>(&one.data)) {
            for (const std::int32_t slot : now) {
                if (!given_up_.contains(slot) && node(slot).started < all->generation) {
                    wrong_ = "ranks that have not begun are told to run: " + describe();
                }
            }
        } else if (const auto* over = std::get_if<event::GenerationEnded>(&one.data)) {
            for (const std::int32_t slot : before) {
                if (lives(slot, over->generation)) {
                    wrong_ = "a generation has ended and its ranks have not: " + describe();
                }
            }
        } else if (const auto* back = std::get_if<event::NodeReturned>(&one.data)) {
            if (node(back->slot).ranks) {
                wrong_ = "a node is back with ranks that do not count: " + describe();
            }
            lost_then.erase(back->slot);
        }
    }
}

void World::check_places(const std::vector<std::int32_t>& before,
                         const std::set<std::int32_t>& lost_then) {
    const std::vector<std::int32_t> now = members();
    shrunk_ += now.size() < before.size() ? 1 : 0;
    grown_ += !before.empty() && now.size() > before.size() ? 1 : 0;
    for (std::size_t place = 0; place < now.size(); ++place) {
        if (lost_then.contains(now[place])) {
            wrong_ = "a lost node is in a generation: " + describe();
        }
        // A node may be back by the end of the draft in which another one took its place.
        if (place < before.size() && now.size() >= before.size() &&
            !given_up_.contains(before[place]) && now[place] != before[place]) {
            wrong_ = "ranks were renumbered without need: " + describe();
        }
    }
}

void World::check_sent(const AgentPtr& link, const wire::DaemonMessage& message) {
    const bool invites = std::holds_alternative<wire::World>(message) ||
                         std::holds_alternative<wire::Start>(message);
    if (is_stranger(link) && (invites || std::holds_alternative<wire::Table>(message))) {
        wrong_ = "a stranger is told of a generation: " + describe();
    }
    const auto slot = slot_at(link);
    if (!slot) {
        return;  // nobody gets it
    }
    if (const auto* world = std::get_if<wire::World>(&message)) {
        check_world(*slot, *world);
    } else if (const auto* start = std::get_if<wire::Start>(&message)) {
        check_start(*slot, start->generation);
    } else if (std::holds_alternative<wire::Fenced>(message) && !given_up_.contains(*slot) &&
               !node(*slot).confused) {
        wrong_ = "node " + std::to_string(*slot) + " is fenced without need: " + describe();
    } else if (const auto* reply = std::get_if<wire::KeyReply>(&message)) {
        check_shared_secret(*reply);
    }
}

void World::check_welcome(const AgentPtr& link) {
    if (is_stranger(link) && link->attempt() >= job().attempt()->number) {
        wrong_ = "a stranger is welcome: " + describe();
    }
    const auto slot = slot_at(link);
    if (slot && lost(*slot) && !may_return(*slot)) {
        wrong_ = "a node that was given up is welcome: " + describe();
    }
}

void World::check_world(std::int32_t slot, const wire::World& world) {
    const Generation* live = job().live_generation();
    if (live == nullptr || live->number != world.generation) {
        wrong_ = "WORLD of a generation that is not on disk: " + describe();
    } else if (live->node_rank_of(slot) != world.node_rank || lost(slot) ||
               world.first_rank != world.node_rank * world.local_ranks) {
        wrong_ = "WORLD to a node that it is not of: " + describe();
    }
}

void World::check_start(std::int32_t slot, std::int32_t generation) {
    const Generation* live = job().live_generation();
    if (live == nullptr || live->number != generation || live->released_at == 0) {
        wrong_ = "START of what is not on disk: " + describe();
        return;
    }
    if (live->node_rank_of(slot) < 0 || lost(slot)) {
        wrong_ = "START to a node that has no part in it: " + describe();
    }
    if (machine_->run().generation.abort_sent) {
        wrong_ = "START behind ABORT: " + describe();
    }
}

void World::check_shared_secret(const wire::KeyReply& reply) {
    const auto asked_in = static_cast<std::int32_t>(reply.id / kRequestsOfAGeneration);
    if (reply.has_value && reply.value != value_of(asked_in)) {
        wrong_ = "a rank sees another generation's key: " + describe();
    }
    const Generation* live = job().live_generation();
    if (reply.ok && (live == nullptr || live->number != asked_in)) {
        wrong_ = "a rank of a generation that is over shares keys: " + describe();
    }
}

void World::check_effect(std::int32_t slot, const NodeInput& input, const NodeEffect& effect) {
    const Node& self = node(slot);
    const auto* abort = std::get_if<wire::Abort>(&input);
    const auto wrong = [&](const std::string& what) {
        if (wrong_.empty()) {
            wrong_ = "node " + std::to_string(slot) + ": " + what + ": " + describe();
        }
    };
    if (const auto* join = std::get_if<node_effect::SendLast>(&effect)) {
        if ((self.ranks && join->join.generation >= self.generation) ||
            (self.prepared != 0 && join->join.generation >= self.prepared)) {
            wrong("JOIN says that ranks are over which live, or may start");
        }
    } else if (const auto* said = std::get_if<node_effect::Send>(&effect)) {
        if (std::holds_alternative<wire::Ready>(said->message) && self.ranks) {
            wrong("READY beside live ranks");
        }
    } else if (const auto* report = std::get_if<node_effect::Report>(&effect)) {
        if (self.ranks && (std::holds_alternative<wire::Done>(report->event) ||
                           std::holds_alternative<wire::Bye>(report->event))) {
            wrong("DONE or BYE beside live ranks");
        }
    } else if (const auto* prepare = std::get_if<node_effect::PrepareRanks>(&effect)) {
        const wire::World& world = prepare->world;
        if (world.generation < self.newest || self.ranks || self.told_to_end) {
            wrong("prepares an old generation, beside live ranks, or as it goes");
        }
        if (!world.table.empty() && world.hosts != std::vector{host_of(world.generation)}) {
            wrong("prepares a generation with another one's table");
        }
    } else if (std::holds_alternative<node_effect::StartRanks>(effect)) {
        const auto* start = std::get_if<wire::Start>(&input);
        if (self.ranks || self.told_to_end || self.prepared == 0 ||
            self.prepared == self.generation || start == nullptr ||
            start->generation != self.prepared) {
            wrong("starts ranks twice, beside others, as it goes, or by another one's START");
        }
    } else if (std::holds_alternative<node_effect::StopRanks>(effect)) {
        if (abort != nullptr && abort->generation != self.generation) {
            wrong("ends ranks by the ABORT of another generation");
        }
    } else if (std::holds_alternative<node_effect::DropRanks>(effect)) {
        if (abort != nullptr && abort->generation != self.prepared) {
            wrong("drops ranks by the ABORT of another generation");
        }
    } else if (const auto* exit = std::get_if<node_effect::Exit>(&effect)) {
        if (self.ranks && exit->code != kAgentFenced) {
            wrong("an agent leaves live ranks");
        }
    }
}

void World::check_obeyed(std::int32_t slot, const NodeInput& input) {
    const Node& self = node(slot);
    const bool fenced = std::holds_alternative<wire::Fenced>(input) ||
                        std::holds_alternative<node_input::Refused>(input);
    if (fenced && self.alive && self.ranks && !self.ending) {
        wrong_ = "a fenced agent lets its ranks live: " + describe();
    }
}

// What no agent says as long as it and the daemon are right.
void World::confuse(std::int32_t slot) {
    Node& self = node(slot);
    const std::int32_t newest = job().generation() == nullptr ? 0 : job().generation()->number;
    if (!self.link || !self.link->accepted || self.frozen || newest == 0) {
        return;
    }
    if (newest > 1) {
        ask_for_key(slot, newest - 1);
    }
    if (pick(12) != 0 || self.link == nullptr) {
        return;
    }
    self.confused = true;
    wire::Started started;
    started.generation = newest + 1;
    feed(AgentInput{self.link, pick(2) == 0 ? wire::AgentMessage{wire::Ready{newest + 1}}
                                            : wire::AgentMessage{std::move(started)}});
}

// Sets the same key in every generation, or reads it.
void World::ask_for_key(std::int32_t slot, std::int32_t generation) {
    wire::KeyRequest request;
    request.generation = generation;
    request.id = static_cast<std::uint64_t>(generation) * kRequestsOfAGeneration + ++request_;
    request.rank = node(slot).rank;
    request.op = pick(2) == 0 ? wire::KvOp::set : wire::KvOp::get;
    request.keys = {"k"};
    request.value = request.op == wire::KvOp::set ? value_of(generation) : "";
    feed(AgentInput{node(slot).link, std::move(request)});
}

}  // namespace lockstep::simulation
