// One small world for rendezvous_simulation_test.cpp: agents, their network, a coordinator, and
// what must hold in it. Everything in it is drawn from the seed.
//
// rendezvous_world.cpp is the coordinator, rendezvous_world_agents.cpp an agent.
#pragma once

#include "daemon/control/machine/rendezvous.hpp"
#include "job/base/limits.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace lockstep::simulation {

inline constexpr std::int32_t kSimulatedNodes = 3;
inline constexpr std::int32_t kSlots = 4;  // one spare
inline constexpr std::int32_t kLeast = 2;  // of an elastic job

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
    void run(int steps);
    void settle();
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
    std::int32_t usable() const;
    std::int32_t node_rank(std::int32_t slot) const;

    // The coordinator, as job_actor_rendezvous.cpp and job_actor_elastic.cpp do it.
    void boot();
    void send(std::int32_t slot, Word word, std::int32_t generation);
    void kill();
    void hear(std::int32_t slot, const Message& message);
    void hear_lost(std::int32_t slot, const Message& message);
    bool abort_if_over(std::int32_t slot, std::int32_t generation);
    void start();
    void take_exit(std::int32_t slot, std::int32_t generation);
    void fail();
    void end_if_over();
    void form();
    bool waits_for_more(const std::vector<std::int32_t>& members);
    bool somebody_comes() const;
    void grow();
    void give_up(std::int32_t slot, bool silent = false);

    // An agent, as job/agent/node.cpp does it.
    void say(std::int32_t slot, Word word, std::int32_t generation) {
        agent(slot).out.push_back({word, generation, agent(slot).incarnation, false});
    }
    void say_join(std::int32_t slot);
    void prepare(std::int32_t slot, std::int32_t generation);
    void obey(std::int32_t slot, const Message& message);
    void ranks_end(std::int32_t slot);
    void drop(std::int32_t slot);
    void connect(std::int32_t slot);
    void start_again(std::int32_t slot);

    // What happens.
    void accident();
    bool spare_waits() const;
    void act();
    void check();
    bool settled() const;
    bool all_run() const;
    std::string describe() const;

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

}  // namespace lockstep::simulation
