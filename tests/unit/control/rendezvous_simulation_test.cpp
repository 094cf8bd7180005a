// Random interleavings of what happens to a job, against the shipped machine: connections drop with
// what was in flight, agents die, freeze, leave and come back, ranks fail, people ask for restarts,
// clocks jump, the coordinator is killed between any two steps, before what it wrote, and after it
// before anybody has heard of it.
// In half of the worlds the job is elastic: it goes on with fewer nodes, nodes that were given up
// call in again, agents are started again by their keepers, and generations grow. Connections stay
// half open, and strangers call in: of another allocation, another attempt, another agent for a
// node that has one. What must hold: the rules of rendezvous_world_rules.cpp, first of all that
// ranks of two generations never live at a time on nodes that count; and once the accidents stop,
// every rank runs, on as many nodes as can be had, or too few nodes are left.
#include "job/base/log.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/unit/control/rendezvous_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace lockstep::simulation {

// In half of the worlds all ranks run before the first accident: otherwise few ever would.
void World::run(int steps) {
    accidents_ = false;
    const int quiet = pick(2) == 0 ? 400 : 0;
    for (int i = 0; i < quiet && wrong_.empty() && !all_run(); ++i) {
        act();
        check();
    }
    accidents_ = true;
    for (int i = 0; i < steps && wrong_.empty() && !over_; ++i) {
        accident();
        act();
        check();
    }
}

// No more accidents: everything that can happen does, many times.
void World::settle() {
    accidents_ = false;
    for (Node& one : nodes_) {
        one.frozen = false;
    }
    for (int i = 0; i < 4000 && wrong_.empty() && !over_ && !settled(); ++i) {
        act();
        check();
    }
    const bool too_few = usable_nodes(job()) < least_ || usable() < least_;
    if (wrong_.empty() && !settled() && !too_few && !crash_loop(*job().attempt())) {
        wrong_ = (over_ ? "given up: " : "stuck: ") + describe();
    }
}

std::int32_t World::usable() const {
    std::int32_t count = 0;
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        const Node& self = node(slot);
        count += (!lost(slot) || may_return(slot)) && self.alive && !self.told_to_end ? 1 : 0;
    }
    return count;
}

void World::accident() {
    const std::int32_t slot = static_cast<std::int32_t>(pick(kSlots));
    Node& self = node(slot);
    switch (pick(40)) {
        case 0:
            drop(slot);
            break;
        case 1:
            if (self.ranks && !self.frozen) {
                ranks_end(slot);  // one failed, the node's others were stopped
            }
            break;
        case 6:
        case 7:
            feed(RestartInput{"ada", [](const Status&) {}});
            break;
        case 2:  // killed between any two steps
            kill();
            break;
        case 3:
            self.frozen = self.alive && !self.frozen;
            break;
        case 4:  // nobody is heard for a while, or this daemon stood still
            steady_ += std::chrono::milliseconds{pick(6000)};
            break;
        case 10:
            if (elastic() && self.alive && self.incarnation < 1 && pick(8) == 0) {
                start_again(slot);
            }
            break;
        case 11:  // the wall clock is set
            wall_ += static_cast<std::int64_t>(pick(2000)) - 1000;
            break;
        case 12:
            send_stranger(slot);
            break;
        case 13:
            leave_half_open(slot);
            break;
        case 14:
            confuse(slot);
            break;
        case 16:  // no way to the coordinator, for longer than it waits, perhaps
            if (self.ranks && pick(2) == 0) {
                drop(slot);
                self.cut_off_until = steady_ + std::chrono::milliseconds{pick(20'000)};
            }
            break;
        case 8:  // SIGTERM
            if (self.alive && !self.frozen && pick(64) == 0) {
                self.told_to_end = true;
                take(slot, node_input::ShutDown{std::chrono::milliseconds{1'000}, "SIGTERM"});
            }
            break;
        case 15:
        case 17:
        case 18:
            if (!self.frozen) {
                repeat(slot);
            }
            break;
        case 9:  // the coordinator is stopped: DRAIN goes behind what was said before it
            if (pick(16) != 0) {
                break;
            }
            for (std::int32_t other = 0; other < kSlots; ++other) {
                while (!node(other).frozen && !node(other).in.empty()) {
                    const FromDaemon message = node(other).in.front();
                    node(other).in.pop_front();
                    obey(other, message);
                }
            }
            kill();
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

void World::act() {
    const auto passed = std::chrono::milliseconds{pick(accidents_ ? 100 : 200)};
    steady_ += passed;
    wall_ += passed.count();
    for (Node& one : nodes_) {
        if (one.link && !one.frozen) {
            one.link->last_heard = steady_;  // BEAT
        }
    }
    const std::int32_t slot = static_cast<std::int32_t>(pick(kSlots));
    Node& self = node(slot);
    if (pick(4) == 0) {
        hear_half_open();
        tick();
    }
    if (over_) {
        return;
    }
    if (pick(2) == 0 && speaks(slot)) {
        const wire::AgentMessage message = std::move(self.out.front());
        self.out.pop_front();
        hear(self.link, slot, message);
        return;
    }
    if (self.frozen || !self.alive) {
        return;
    }
    if (self.leaving && (self.outbox.settled() || steady_ >= self.machine.leave_until())) {
        take(slot, node_input::LeavingLook{self.outbox.settled()});
    } else if (self.setup && pick(4) == 0) {
        self.setup = false;
        take(slot, node_input::SetupEnded{});
    } else if (!self.link && steady_ >= self.cut_off_until) {
        connect(slot);
    } else if (!self.in.empty()) {
        const FromDaemon message = self.in.front();
        self.in.pop_front();
        obey(slot, message);
    } else if (self.ranks && self.ending) {
        ranks_end(slot);
    } else if (self.ranks && self.link && pick(4) == 0) {
        ask_for_key(slot, self.generation);
    }
}

bool World::settled() const {
    return all_run() && (!elastic() || job().nodes() == std::min(usable(), kSimulatedNodes));
}

bool World::all_run() const {
    const Generation* live = job().live_generation();
    if (live == nullptr || live->first_failure || live->running_at == 0) {
        return false;
    }
    for (std::int32_t place = 0; place < live->nodes; ++place) {
        const Node& self = node(live->slot_of(place));
        if (!self.alive || !self.ranks || self.generation != live->number) {
            return false;
        }
    }
    return true;
}

std::string World::describe() const {
    const Generation* newest = job().generation();
    const Action action = machine_->what_is_due(at());
    std::string out = "generation " + std::to_string(newest == nullptr ? 0 : newest->number) +
                      (newest != nullptr && newest->open() ? " live" : " over") +
                      (newest != nullptr && newest->first_failure ? " failed" : "") + ", " +
                      std::string{to_string(action.kind)} + " (" + action.cause.message + ")";
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
        const Node& self = node(slot);
        out += "; " + std::to_string(slot) + (lost(slot) ? " lost" : "") +
               (self.alive ? "" : " dead") + (self.frozen ? " frozen" : "") +
               (self.link ? "" : " away") + (self.ranks ? " ranks" : "") + " g" +
               std::to_string(self.generation) + " p" + std::to_string(self.prepared) + " c" +
               std::to_string(static_cast<int>(machine_->run().rendezvous.phase(slot)));
    }
    return out;
}

namespace {

// Of the shipped machine; LOCKSTEP_SCHEDULES=1000000 takes some minutes.
std::uint32_t schedules() {
    const char* asked = std::getenv("LOCKSTEP_SCHEDULES");
    return asked != nullptr ? static_cast<std::uint32_t>(std::strtoul(asked, nullptr, 10))
                            : (test::kSanitized ? 300 : 20'000);
}

TEST(RendezvousSimulation, NoInterleavingMixesGenerationsOrWaitsForEver) {
    std::uint64_t generations = 0;
    std::uint64_t shrunk = 0;
    std::uint64_t grown = 0;
    log::start("simulation", log::Level::error, false);
    const std::uint32_t count = schedules();
    std::uint64_t over = 0;
    const char* const only = std::getenv("LOCKSTEP_SEED");  // replays one schedule
    const auto first =
        only == nullptr ? 1U : static_cast<std::uint32_t>(std::strtoul(only, nullptr, 10));
    for (std::uint32_t seed = first; seed <= (only == nullptr ? count : first); ++seed) {
        World world{seed, seed % 2 == 0};
        world.run(static_cast<int>(80 + seed % 240));
        world.settle();
        ASSERT_EQ(world.wrong(), "") << "seed " << seed;
        generations += static_cast<std::uint64_t>(world.generations());
        shrunk += static_cast<std::uint64_t>(world.shrunk());
        grown += static_cast<std::uint64_t>(world.grown());
        over += world.over() ? 1 : 0;
    }
    log::start("test", log::Level::info, false);
    if (only != nullptr) {
        return;
    }
    RecordProperty("generations", static_cast<int>(generations));
    RecordProperty("shrunk", static_cast<int>(shrunk));
    RecordProperty("grown", static_cast<int>(grown));
    RecordProperty("over", static_cast<int>(over));
    EXPECT_LT(over, count / 2) << "most worlds live";
    // The accidents do happen: on average there is more than one generation in a world.
    EXPECT_GT(generations, count + count / 4);
    EXPECT_GT(shrunk, count / 50);
    EXPECT_GT(grown, count / 100);
}

}  // namespace
}  // namespace lockstep::simulation
