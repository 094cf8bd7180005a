// size: one small world with its agents, its network, its coordinator and what must hold in it
// A million random interleavings of the meeting of nodes: connections drop with what was in flight,
// agents die, freeze, leave and come back, ranks fail, the coordinator is killed between any two
// steps, or stopped.
// In half of the worlds the job is elastic: it goes on with fewer nodes, nodes that were given up
// call in again, agents are started again by their keepers, and generations grow. What must hold:
// ranks of two generations never live at a time on nodes that count; and once the accidents stop,
// every rank runs, on as many nodes as can be had, or too few nodes are left.
#include "daemon/control/rendezvous.hpp"
#include "job/base/limits.hpp"
#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int32_t kSimulatedNodes = 3;
constexpr std::int32_t kSlots = 4;  // one spare
constexpr std::int32_t kLeast = 2;  // of an elastic job

constexpr std::uint32_t kSchedules = test::kSanitized ? 5'000 : 1'000'000;

enum class Word : std::uint8_t {
    hello,  // generation: of live ranks, 0 = none
    join,   // generation: the newest that is over here
    ready,
    started,
    exited,   // every rank of the node has ended
    welcome,  // generation: the newest
    world,
    start,
    abort,
    fenced,
    table_please,
    table,
    bye,
};
struct Message {
    Word word = Word::hello;
    std::int32_t generation = 0;
    std::int32_t incarnation = 0;  // of hello and join
    bool late = false;             // hello of one whose ranks are none that count any more
};

// As job/agent/node.cpp behaves.
struct Agent {
    enum class Phase : std::uint8_t { waiting, ready, running };
    bool alive = true;
    std::int32_t incarnation = 0;
    bool frozen = false;  // does nothing, its ranks go on
    bool connected = false;
    Phase phase = Phase::waiting;
    std::int32_t generation = 0;
    bool started_here = false;  // of `generation`
    bool ranks = false;         // live ranks of `generation`
    bool ending = false;        // they were told to end
    bool join_wanted = false;
    bool exits_unsaid = false;  // EXITED is kept until it was acknowledged
    std::int32_t awaiting = 0;  // this generation's WORLD waits for its TABLE
    bool leaving = false;       // it was told to end
    std::deque<Message> out;
    std::deque<Message> in;
};

// What is on disk.
struct Disk {
    std::int32_t generation = 0;
    bool live = false;
    bool released = false;  // START may have left
    bool failed = false;
    std::vector<std::int32_t> members;
    std::vector<bool> ended;
    std::array<bool, kSlots> lost{};
    std::array<bool, kSlots> absent{};           // of the lost: may return
    std::array<std::int32_t, kSlots> returns{};  // how often it did
    std::array<std::int32_t, kSlots> incarnation{};
};

class World {
  public:
    World(std::uint64_t seed, bool elastic)
        : random_(seed), least_(elastic ? kLeast : kSimulatedNodes) {
        boot();
    }

    void run(int steps) {
        for (int i = 0; i < steps && wrong_.empty(); ++i) {
            accident();
            act();
            check();
        }
    }
    // No more accidents: everything that can happen does, many times.
    void settle() {
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
    const std::string& wrong() const { return wrong_; }
    std::int32_t generations() const { return disk_.generation; }
    std::int32_t shrunk() const { return shrunk_; }
    std::int32_t grown() const { return grown_; }

  private:
    std::uint32_t pick(std::uint32_t below) {
        return static_cast<std::uint32_t>(random_() % below);
    }
    Agent& agent(std::int32_t slot) { return agents_[static_cast<std::size_t>(slot)]; }
    bool elastic() const { return least_ < kSimulatedNodes; }
    bool lost(std::int32_t slot) const { return disk_.lost[static_cast<std::size_t>(slot)]; }
    bool may_return(std::int32_t slot) const {
        const auto index = static_cast<std::size_t>(slot);
        return elastic() && disk_.absent[index] && disk_.returns[index] < limits::kReturns;
    }
    std::int32_t usable() const {
        std::int32_t count = 0;
        for (std::int32_t slot = 0; slot < kSlots; ++slot) {
            const Agent& self = agents_[static_cast<std::size_t>(slot)];
            count += (!lost(slot) || may_return(slot)) && self.alive && !self.leaving ? 1 : 0;
        }
        return count;
    }
    std::int32_t node_rank(std::int32_t slot) const {
        const auto found = std::find(disk_.members.begin(), disk_.members.end(), slot);
        return disk_.generation == 0 || found == disk_.members.end()
                   ? -1
                   : static_cast<std::int32_t>(found - disk_.members.begin());
    }

    // ---- the coordinator, as job_actor_rendezvous.cpp does it ----
    void boot() {
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
    void send(std::int32_t slot, Word word, std::int32_t generation) {
        if (agent(slot).connected) {
            agent(slot).in.push_back({word, generation});
        }
    }
    // What is in flight is gone, and who had said BYE.
    void kill() {
        for (std::int32_t other = 0; other < kSlots; ++other) {
            drop(other);
        }
        boot();
    }
    void hear(std::int32_t slot, const Message& message) {
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
                if (!abort_if_over(slot, message.generation) &&
                    met_.ready(slot, message.generation)) {
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
    void hear_lost(std::int32_t slot, const Message& message) {
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
    bool abort_if_over(std::int32_t slot, std::int32_t generation) {
        const bool over =
            generation < disk_.generation || (generation == disk_.generation && !disk_.live);
        if (over) {
            send(slot, Word::abort, generation);
        }
        return over;
    }
    void start() {
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
    void take_exit(std::int32_t slot, std::int32_t generation) {
        agent(slot).exits_unsaid = false;  // acknowledged
        const std::int32_t node = node_rank(slot);
        if (disk_.live && generation == disk_.generation && node >= 0) {
            disk_.ended[static_cast<std::size_t>(node)] = true;
            fail();
        }
    }
    void fail() {
        disk_.failed = true;
        for (const std::int32_t slot : disk_.members) {
            send(slot, Word::abort, disk_.generation);
        }
        end_if_over();
    }
    // Nodes on which no rank was started have no end to report: their JOIN or their loss says it.
    void end_if_over() {
        if (!disk_.live || !disk_.failed) {
            return;
        }
        for (std::size_t node = 0; node < disk_.members.size(); ++node) {
            const std::int32_t slot = disk_.members[node];
            if (!lost(slot) && !disk_.ended[node] &&
                met_.phase(slot) != Rendezvous::Phase::joined) {
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
    void form() {
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
    bool waits_for_more(const std::vector<std::int32_t>& members) {
        if (members.size() == kSimulatedNodes) {
            return false;
        }
        const bool late = disk_.generation == 0 ? !met_.everybody_joined() : somebody_comes();
        return late && pick(16) != 0;
    }
    bool somebody_comes() const {
        for (std::int32_t slot = 0; slot < kSlots; ++slot) {
            if (lost(slot) && may_return(slot) &&
                agents_[static_cast<std::size_t>(slot)].connected) {
                return true;
            }
        }
        return false;
    }
    // The ranks are started again because there are more nodes.
    void grow() {
        if (elastic() && all_run() && disk_.members.size() < kSimulatedNodes && spare_waits()) {
            fail();
        }
    }
    // `silent`: it may have ranks, and come back; else it is fenced.
    void give_up(std::int32_t slot, bool silent = false) {
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

    // ---- an agent, as node.cpp does it ----
    void say(std::int32_t slot, Word word, std::int32_t generation) {
        agent(slot).out.push_back({word, generation, agent(slot).incarnation, false});
    }
    void say_join(std::int32_t slot) {
        const Agent& self = agent(slot);
        say(slot, Word::join,
            self.phase == Agent::Phase::waiting ? self.generation : self.generation - 1);
    }
    void prepare(std::int32_t slot, std::int32_t generation) {
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
    void obey(std::int32_t slot, const Message& message) {
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
    void ranks_end(std::int32_t slot) {
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
    void drop(std::int32_t slot) {
        Agent& self = agent(slot);
        if (std::exchange(self.connected, false)) {
            met_.disconnected(slot);
        }
        self.out.clear();
        self.in.clear();
    }
    void connect(std::int32_t slot) {
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
    void start_again(std::int32_t slot) {
        drop(slot);
        const std::int32_t next = agent(slot).incarnation + 1;
        agent(slot) = Agent{};
        agent(slot).incarnation = next;
    }

    // ---- what happens ----
    void accident() {
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
    bool spare_waits() const {
        for (std::int32_t slot = 0; slot < kSlots; ++slot) {
            if (met_.is_spare(slot)) {
                return true;
            }
        }
        return false;
    }
    void act() {
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
    void check() {
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
    bool settled() const {
        return all_run() && (!elastic() || static_cast<std::int32_t>(disk_.members.size()) ==
                                               std::min(usable(), kSimulatedNodes));
    }
    bool all_run() const {
        return disk_.live && !disk_.failed &&
               std::all_of(disk_.members.begin(), disk_.members.end(), [this](std::int32_t slot) {
                   const Agent& self = agents_[static_cast<std::size_t>(slot)];
                   return self.alive && self.ranks && self.generation == disk_.generation;
               });
    }
    std::string describe() const {
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

    std::minstd_rand random_;
    std::int32_t least_;
    std::int32_t shrunk_ = 0;
    std::int32_t grown_ = 0;
    Disk disk_;
    Rendezvous met_{kSimulatedNodes, kSlots, least_};
    std::array<bool, kSlots> left_{};              // said BYE; in memory only
    std::array<std::int32_t, kSlots> hello_of_{};  // what it said of itself; in memory only
    std::array<Agent, kSlots> agents_;
    bool accidents_ = true;
    std::string wrong_;
};

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
}  // namespace lockstep
