// The driver of a simulated world's coordinator.
#include "tests/unit/control/rendezvous_world.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

namespace lockstep::simulation {
namespace {

// An attempt that has its allocation, and nobody has called in yet.
Job new_job(std::int32_t least) {
    const bool elastic = least < kSimulatedNodes;
    const std::string spec =
        R"({"name":"t","framework":"command","command":["x"],"resources":{"nodes":)" +
        std::to_string(kSimulatedNodes) + R"(,"spares":)" +
        std::to_string(kSlots - kSimulatedNodes) +
        (elastic ? R"(,"min_nodes":)" + std::to_string(least) : "") +
        R"(},"preflight":{"mode":"off"},"recovery":{"on":["rank_failure","node_failure"],)" +
        (elastic ? R"("grow_after_seconds":5,)" : "") + R"("max_restarts":100}})";
    Event event;
    event.job = JobId{"ls-01J00000000000000000000000"};
    event.time = 1'700'000'000'000;
    event.data = event::Submitted{"ada", *parse_json(spec), {}};
    Job out = start_job(event).value();
    event.data = event::AttemptCreated{1, "", "/nowhere"};
    bool applied = apply(out, event).has_value();
    event.data = event::AttemptPlaced{1, "local-1"};
    applied = apply(out, event).has_value() && applied;
    if (!applied) {
        throw std::logic_error("the simulated job cannot begin");
    }
    return out;
}

}  // namespace

World::World(std::uint64_t seed, bool elastic)
    : random_(seed), least_(elastic ? kLeast : kSimulatedNodes) {
    boot(new_job(least_));
}

std::int32_t World::generations() const {
    return static_cast<std::int32_t>(job().attempt()->generations.size());
}

Surroundings World::at() const {
    Surroundings out;
    out.steady = out.timers = steady_;
    out.wall = wall_;
    out.scheduler = "local";
    return out;
}

void World::boot(Job job) {
    inputs_.clear();
    ++boots_;
    machine_ = std::make_unique<JobMachine>(std::move(job), files_,
                                            [](std::int32_t, const std::string&) { return true; });
}

void World::kill() {
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        disconnect(slot);
    }
    half_open_.clear();
    strangers_.clear();
    boot(job());
}

void World::feed(JobInput input) {
    inputs_.push_back(std::move(input));
    if (!accidents_ || pick(4) != 0) {
        take_inputs();  // else it gathers with what comes next
    }
}

// As JobActor::take_inputs() does: what has gathered shares an append, and is taken again as a
// whole if that fails.
void World::take_inputs() {
    while (!inputs_.empty()) {
        std::vector<JobInput> taken(std::make_move_iterator(inputs_.begin()),
                                    std::make_move_iterator(inputs_.end()));
        inputs_.clear();
        for (Append end = Append::refused; end == Append::refused;) {
            Draft draft = machine_->take_all(taken, at());
            end = commit(draft);
            if (end == Append::refused) {
                wait_for_room();
            }
        }
    }
}

// Meanwhile time passes, and connections end.
void World::wait_for_room() {
    const auto passed = std::chrono::milliseconds{pick(1500)};
    steady_ += passed;
    wall_ += passed.count();
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        if (node(slot).link && pick(8) == 0) {
            inputs_.emplace_back(AgentGoneInput{disconnect(slot)});
        } else if (node(slot).link && !node(slot).frozen) {
            node(slot).link->last_heard = steady_;
        }
    }
}

World::Append World::commit(Draft& draft) {
    prepare(draft);
    const bool writes = !draft.events.empty();
    if (writes && accidents_ && pick(64) == 0) {
        machine_->not_stored(draft);
        return Append::refused;
    }
    if (writes && accidents_ && pick(64) == 0) {
        kill();  // nothing of it is on disk
        return Append::killed;
    }
    const std::vector<std::int32_t> before = members();
    const std::int32_t generations_before = generations();
    const Surroundings now = at();
    Effects effects = machine_->stored(draft, now);
    check_stored(draft.events, before, generations_before);
    if (job().live_generation() != nullptr && machine_->run().generation.table == nullptr) {
        // As of a world that is too large for WORLD: agents may ask for it.
        machine_->run().generation.table = std::make_shared<const std::string>("");
    }
    if (writes && accidents_ && pick(64) == 0) {
        kill();  // it is on disk, and nobody has heard it
        return Append::killed;
    }
    for (const auto& [link, event] : draft.heard) {
        deliver(link, wire::Ack{0, event});
    }
    perform(std::move(effects));
    inputs_.insert(inputs_.begin(), std::make_move_iterator(draft.deferred.begin()),
                   std::make_move_iterator(draft.deferred.end()));
    return Append::stored;
}

void World::prepare(Draft& draft) {
    lost_before_.clear();
    for (const auto& [slot, why] : job().attempt()->lost) {
        lost_before_.insert(slot);
    }
    given_up_ = lost_before_;
    for (const Event& one : draft.events) {
        const auto* fault = std::get_if<event::FaultSeen>(&one.data);
        if (fault != nullptr && fault->slot >= 0) {
            given_up_.insert(fault->slot);
        }
    }
    if (!draft.broken.empty()) {
        wrong_ = "a promise would have been broken: " + describe();
    }
    perform(std::move(draft.at_once));
}

void World::perform(Effects effects) {
    for (Effect& effect : effects.take()) {
        if (auto* one = std::get_if<effect::Send>(&effect)) {
            send(one->to, one->message);
        } else if (auto* shared = std::get_if<effect::SendShared>(&effect)) {
            if (shared->text == machine_->run().generation.table) {
                check_sent(shared->to, wire::Table{});
                const std::int32_t live = job().live_generation()->number;
                deliver(shared->to, wire::Table{digest_of(live), {host_of(live)}, {}, {}});
            } else {
                send(shared->to, wire::decode_daemon(*shared->text).value());
            }
        } else if (auto* greet = std::get_if<effect::Greet>(&effect)) {
            check_welcome(greet->to);
            wire::Welcome welcome;
            welcome.daemon = "d" + std::to_string(boots_);
            welcome.generation = job().generation() == nullptr ? 0 : job().generation()->number;
            deliver(greet->to, std::move(welcome));
        } else if (auto* close = std::get_if<effect::Close>(&effect)) {
            deliver(close->link, std::nullopt);
        } else if (auto* late = std::get_if<effect::Acknowledge>(&effect)) {
            deliver(late->to, wire::Ack{0, late->event});
        } else if (std::holds_alternative<effect::LookAgain>(effect)) {
            inputs_.emplace_back(LookInput{});
        } else if (auto* again = std::get_if<effect::HearAgain>(&effect)) {
            inputs_.emplace_front(std::move(again->input));
        } else if (auto* answer = std::get_if<effect::Answer>(&effect)) {
            answer->done(answer->status);
        }
    }
}

void World::send(const AgentPtr& link, const wire::DaemonMessage& message) {
    check_sent(link, message);
    if (const auto* world = std::get_if<wire::World>(&message); world != nullptr && pick(2) == 0) {
        wire::World large = *world;
        large.table = digest_of(world->generation);
        large.hosts.clear();
        deliver(link, std::move(large));
    } else {
        deliver(link, message);
    }
}

void World::deliver(const AgentPtr& link, FromDaemon message) {
    for (Node& one : nodes_) {
        if (one.link == link) {
            one.in.push_back(std::move(message));
            return;
        }
    }
}

void World::hear(const AgentPtr& link, std::int32_t slot, wire::AgentMessage message) {
    link->last_heard = steady_;
    if (std::holds_alternative<wire::Hello>(message)) {
        link->node_rank = slot;
    }
    feed(AgentInput{link, std::move(message)});
}

// What JobActor::act() does; the scheduler knows of agents that ended without a word, soon or late.
void World::tick() {
    take_inputs();
    const Action action = machine_->what_is_due(at());
    Observation seen;
    seen.kind = Observation::Kind::state;
    seen.state = AllocationState::running;
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        if (!node(slot).alive && pick(8) == 0) {
            seen.lost_nodes.push_back(slot);
        }
    }
    Draft draft = machine_->draft(at());
    if (action.fault) {
        draft.add(*action.fault);
        commit(draft);
        return;
    }
    switch (action.kind) {
        case ActionKind::gather:
        case ActionKind::watch:
            machine_->look(draft, seen, true);
            break;
        case ActionKind::restart:
            perform(machine_->abort(action.cause, at()));
            if (const auto after = machine_->look_while_aborting(draft, seen, true)) {
                prepare(draft);
                Draft end = machine_->draft(at());
                machine_->end_generation(end, action.cause, *after);
                commit(end);
                return;
            }
            break;
        default:
            over_ = true;
            return;
    }
    if (draft.events.empty()) {
        prepare(draft);
    } else {
        commit(draft);
    }
    take_inputs();
}

}  // namespace lockstep::simulation
