// An agent of a simulated world: the driver of the shipped machine, without processes or sockets.
#include "tests/unit/control/rendezvous_world.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::simulation {

Node::Node(std::int32_t which)
    : incarnation(which),
      machine("i" + std::to_string(which),
              {std::chrono::milliseconds{1'000}, std::chrono::milliseconds{5'000}}) {}

// As lockstep::Node::take() does: answers to effects behind the effects beside them.
void World::take(std::int32_t slot, NodeInput input) {
    std::deque<NodeInput> inputs{std::move(input)};
    while (!inputs.empty()) {
        const NodeInput next = std::move(inputs.front());
        inputs.pop_front();
        for (const NodeEffect& effect : node(slot).machine.take(next, {steady_, wall_})) {
            check_effect(slot, next, effect);
            perform(slot, effect, inputs);
        }
        check_obeyed(slot, next);
    }
}

void World::perform(std::int32_t slot, const NodeEffect& effect, std::deque<NodeInput>& answers) {
    Node& self = node(slot);
    if (const auto* one = std::get_if<node_effect::Send>(&effect)) {
        if (const auto* ready = std::get_if<wire::Ready>(&one->message)) {
            self.readied = ready->generation;
        } else if (const auto* started = std::get_if<wire::Started>(&one->message)) {
            self.started = started->generation;
        }
        self.outbox.control(one->message);
    } else if (const auto* last = std::get_if<node_effect::SendLast>(&effect)) {
        self.outbox.control_last(last->join);
    } else if (const auto* report = std::get_if<node_effect::Report>(&effect)) {
        std::visit([&self](const auto& event) { self.outbox.event(event); }, report->event);
    } else if (std::holds_alternative<node_effect::HoldPorts>(effect)) {
        wire::Join join;
        join.address = "127.0.0.1";
        join.port = 5000;
        answers.emplace_back(node_input::PortsHeld{std::move(join)});
    } else if (const auto* save = std::get_if<node_effect::SaveResult>(&effect)) {
        answers.emplace_back(node_input::ResultSaved{save->result.generation});
    } else if (const auto* leave = std::get_if<node_effect::Leave>(&effect)) {
        self.leaving = true;
        if (leave->settle) {
            answers.emplace_back(node_input::LeavingBegun{});
        }
    } else if (std::holds_alternative<node_effect::Exit>(effect)) {
        self.alive = false;
        self.ranks = false;  // the kernel ends them with it
        drop(slot);
    } else {
        perform_for_ranks(slot, effect, answers);
    }
}

void World::perform_for_ranks(std::int32_t slot, const NodeEffect& effect,
                              std::deque<NodeInput>& answers) {
    Node& self = node(slot);
    if (const auto* prepare = std::get_if<node_effect::PrepareRanks>(&effect)) {
        self.prepared = self.newest = prepare->world.generation;
        self.rank = prepare->world.first_rank;
        answers.emplace_back(node_input::RanksPrepared{});
    } else if (std::holds_alternative<node_effect::DropRanks>(effect)) {
        self.prepared = 0;
    } else if (std::holds_alternative<node_effect::StartRanks>(effect)) {
        self.generation = std::exchange(self.prepared, 0);
        self.ranks = true;
        self.ending = false;
        answers.emplace_back(node_input::RanksStarted{self.generation, {{self.rank, 100 + slot}}});
    } else if (std::holds_alternative<node_effect::StopRanks>(effect)) {
        self.ending = self.ranks;
    }
}

void World::obey(std::int32_t slot, const FromDaemon& message) {
    Node& self = node(slot);
    if (!message) {
        drop(slot);
        return;
    }
    if (const auto* first = std::get_if<wire::Welcome>(&*message)) {
        welcome(slot, *first);
        return;
    }
    if (!self.machine.connected()) {  // as Session::greet() does
        if (const auto* fenced = std::get_if<wire::Fenced>(&*message)) {
            take(slot, node_input::Refused{fenced->message});
        }
        drop(slot);
        return;
    }
    std::visit(
        [&](const auto& one) {
            using Order = std::decay_t<decltype(one)>;
            if constexpr (std::is_same_v<Order, wire::Ack>) {
                self.outbox.acknowledge(one.event, one.batch);
            } else if constexpr (std::is_same_v<Order, wire::World> ||
                                 std::is_same_v<Order, wire::Table> ||
                                 std::is_same_v<Order, wire::Start> ||
                                 std::is_same_v<Order, wire::Abort> ||
                                 std::is_same_v<Order, wire::Fenced>) {
                self.obeyed.emplace_back(one);
                take(slot, one);
            }
        },
        *message);
}

void World::welcome(std::int32_t slot, const wire::Welcome& welcome) {
    Node& self = node(slot);
    self.outbox.reconnected(welcome.acked_batch);
    if (!std::exchange(self.had_setup, true) && pick(4) == 0) {
        self.setup = true;
        take(slot, node_input::SetupBegun{});
    }
    node_input::Welcomed input;
    input.daemon = welcome.daemon;
    input.generation = welcome.generation;
    input.job = NodeJob{false, false};
    take(slot, std::move(input));
}

void World::ranks_end(std::int32_t slot) {
    Node& self = node(slot);
    self.ranks = false;
    wire::Exited exited;
    exited.generation = self.generation;
    exited.rank = self.rank;
    exited.exit_code = 1;
    exited.time = wall_;
    take(slot, node_input::RankExited{std::move(exited)});
    take(slot, node_input::RanksEnded{});
}

bool World::speaks(std::int32_t slot) {
    Node& self = node(slot);
    if (self.out.empty() && self.link && self.machine.connected()) {
        if (const auto frame = self.outbox.next()) {
            self.out.push_back(wire::decode_agent(frame->bytes).value());
        }
    }
    return self.link && !self.out.empty();
}

AgentPtr World::disconnect(std::int32_t slot) {
    Node& self = node(slot);
    self.out.clear();
    self.in.clear();
    self.obeyed.clear();
    self.outbox.disconnected();
    take(slot, node_input::Disconnected{});
    return std::exchange(self.link, nullptr);
}

void World::drop(std::int32_t slot) {
    if (const AgentPtr link = disconnect(slot)) {
        feed(AgentGoneInput{link});
    }
}

void World::connect(std::int32_t slot) {
    Node& self = node(slot);
    self.link = std::make_shared<Agent>(1, "127.0.0.1");
    self.link->last_heard = steady_;
    wire::Hello hello;
    hello.node_rank = slot;
    hello.node = "n" + std::to_string(slot);
    hello.incarnation = "i" + std::to_string(self.incarnation);
    hello.allocation = "local-1";
    hello.generation = self.machine.generation();
    hello.ranks_running = self.machine.ranks_run();
    self.out.emplace_back(std::move(hello));
}

void World::repeat(std::int32_t slot) {
    Node& self = node(slot);
    if (self.link && !self.obeyed.empty()) {
        const auto which = pick(static_cast<std::uint32_t>(self.obeyed.size()));
        self.in.emplace_back(self.obeyed[which]);
    }
}

// What it has said is still read; its end is noticed late, or with the next one's HELLO.
void World::leave_half_open(std::int32_t slot) {
    Node& self = node(slot);
    if (!self.link || self.leaving) {
        return;
    }
    HalfOpen one{self.link, slot, {}};
    while (speaks(slot)) {
        one.said.push_back(std::move(self.out.front()));
        self.out.pop_front();
    }
    disconnect(slot);
    half_open_.push_back(std::move(one));
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
    Node next{node(slot).incarnation + 1};
    next.readied = node(slot).readied;  // it was said
    next.started = node(slot).started;
    node(slot) = std::move(next);
}

}  // namespace lockstep::simulation
