// One small world for rendezvous_simulation_test.cpp: agents, their network, a coordinator, and
// what must hold in it. Everything in it is drawn from the seed.
//
// The coordinator is the shipped JobMachine; rendezvous_world.cpp is only its driver: what
// JobActor, the store and the scheduler are to it. rendezvous_world_agents.cpp is an agent,
// rendezvous_world_rules.cpp what must hold at every step.
#pragma once

#include "daemon/control/machine/job_machine.hpp"
#include "tests/unit/control/no_files.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace lockstep::simulation {

inline constexpr std::int32_t kSimulatedNodes = 3;
inline constexpr std::int32_t kSlots = 4;  // one spare
inline constexpr std::int32_t kLeast = 2;  // of an elastic job

enum class Word : std::uint8_t {
    hello,  // generation: the newest that it knows
    join,   // generation: the newest that is over here
    ready,
    started,
    exited,   // every rank of the node has ended
    welcome,  // generation: the newest
    world,
    start,
    abort,
    fenced,
    acknowledged,
    table_please,
    table,
    bye,
    closed,  // the daemon ends the connection
};
struct Message {
    Word word = Word::hello;
    std::int32_t generation = 0;
    std::int32_t rank = 0;  // world, exited: the node's only one
    bool running = false;   // hello: it has ranks
};

// As job/agent/node/node.cpp behaves.
struct Node {
    enum class Phase : std::uint8_t { waiting, ready, running };
    bool alive = true;
    std::int32_t incarnation = 0;
    bool frozen = false;  // does nothing, its ranks go on
    AgentPtr link{};      // nullptr: not connected
    Phase phase = Phase::waiting;
    std::int32_t generation = 0;
    std::int32_t rank = 0;
    bool started_here = false;  // of `generation`
    bool ranks = false;         // live ranks of `generation`
    bool ending = false;        // they were told to end
    bool join_wanted = false;
    bool exits_unsaid = false;  // EXITED is kept until it was acknowledged
    std::int32_t awaiting = 0;  // this generation's WORLD waits for its TABLE
    std::int32_t awaiting_rank = 0;
    bool leaving = false;      // it was told to end
    bool confused = false;     // it has said what cannot be
    std::int32_t readied = 0;  // the newest generation that READY, STARTED was said of here
    std::int32_t started = 0;
    std::deque<Message> out;
    std::deque<Message> in;
};

class World {
  public:
    World(std::uint64_t seed, bool elastic);
    void run(int steps);
    void settle();
    const std::string& wrong() const { return wrong_; }
    std::int32_t generations() const;
    std::int32_t shrunk() const { return shrunk_; }
    std::int32_t grown() const { return grown_; }
    bool over() const { return over_; }

  private:
    std::uint32_t pick(std::uint32_t below) {
        return static_cast<std::uint32_t>(random_() % below);
    }
    Node& node(std::int32_t slot) { return nodes_[static_cast<std::size_t>(slot)]; }
    const Node& node(std::int32_t slot) const { return nodes_[static_cast<std::size_t>(slot)]; }
    const Job& job() const { return machine_->job(); }
    bool elastic() const { return least_ < kSimulatedNodes; }
    bool lost(std::int32_t slot) const { return job().attempt()->lost.contains(slot); }
    bool may_return(std::int32_t slot) const { return job().attempt()->may_return(slot); }
    std::int32_t usable() const;

    // The coordinator's driver: what is on disk is the machine's job.
    Surroundings at() const;
    void boot(Job job);
    // Killed: what is in flight is gone, and all that was in memory.
    void kill();
    void feed(JobInput input);
    void take_inputs();
    // Appends and acts; now and then the append fails, or it is killed before, or in between.
    enum class Append : std::uint8_t { stored, refused, killed };
    Append commit(Draft& draft);
    void wait_for_room();
    void prepare(Draft& draft);
    void perform(Effects effects);
    void send(const AgentPtr& link, const wire::DaemonMessage& message);
    void deliver(const AgentPtr& link, Message message);
    void hear(std::int32_t slot, const Message& message);
    void hear(const AgentPtr& link, std::int32_t slot, const Message& message);
    void tick();

    // What must hold: when events have become durable, and when something is sent. `before`: slots
    // of the generation before.
    void check_stored(const std::vector<Event>& events, const std::vector<std::int32_t>& before,
                      std::int32_t generations_before);
    void check_places(const std::vector<std::int32_t>& before,
                      const std::set<std::int32_t>& lost_then);
    void check_sent(const AgentPtr& link, const wire::DaemonMessage& message);
    void check_welcome(const AgentPtr& link);
    void check_world(std::int32_t slot, const wire::World& world);
    void check_start(std::int32_t slot, std::int32_t generation);
    void check_shared_secret(const wire::KeyReply& reply);
    bool lives(std::int32_t slot, std::int32_t generation) const;
    std::optional<std::int32_t> slot_at(const AgentPtr& link) const;
    bool is_stranger(const AgentPtr& link) const;
    std::vector<std::int32_t> members() const;

    // An agent, as job/agent/node/node.cpp does it.
    void say(std::int32_t slot, Word word, std::int32_t generation) {
        node(slot).out.push_back({word, generation, node(slot).rank, node(slot).ranks});
    }
    void say_join(std::int32_t slot);
    void prepare_ranks(std::int32_t slot, std::int32_t generation, std::int32_t rank);
    void obey(std::int32_t slot, const Message& message);
    void ranks_end(std::int32_t slot);
    void drop(std::int32_t slot);
    void connect(std::int32_t slot);
    void start_again(std::int32_t slot);
    // Its connection is thought to be there after it has made another one.
    void leave_half_open(std::int32_t slot);
    void hear_half_open();
    void ask_for_key(std::int32_t slot, std::int32_t generation);
    void confuse(std::int32_t slot);
    // One that has no right to the node calls in, and says all that its agent could.
    void send_stranger(std::int32_t slot);

    // What happens.
    void accident();
    void act();
    void check();
    bool settled() const;
    bool all_run() const;
    std::string describe() const;

    std::minstd_rand random_;
    std::int32_t least_;
    std::int32_t shrunk_ = 0;
    std::int32_t grown_ = 0;
    NoFiles files_;
    std::unique_ptr<JobMachine> machine_;
    std::chrono::steady_clock::time_point steady_{std::chrono::hours{1}};
    UnixMillis wall_ = 1'700'000'000'000;
    std::deque<JobInput> inputs_;
    std::uint64_t event_ = 0;  // of what agents say
    std::array<Node, kSlots> nodes_;
    std::uint64_t request_ = 0;  // for keys
    std::int32_t strangers_sent_ = 0;
    std::vector<AgentPtr> strangers_;  // since the daemon's last start
    struct HalfOpen {
        AgentPtr link;
        std::int32_t slot;
        std::deque<Message> said;
    };
    std::deque<HalfOpen> half_open_;
    // Nodes that were lost before the draft that is being stored; and with those that are by it.
    std::set<std::int32_t> lost_before_;
    std::set<std::int32_t> given_up_;
    bool accidents_ = true;
    bool over_ = false;  // the job has ended, or needs another allocation
    std::string wrong_;
};

}  // namespace lockstep::simulation
