// One small world for rendezvous_simulation_test.cpp: agents, their network, a coordinator, and
// what must hold in it. Everything in it is drawn from the seed.
//
// The coordinator is the shipped JobMachine; rendezvous_world.cpp is only its driver: what
// JobActor, the store and the scheduler are to it. An agent is the shipped NodeMachine with the
// shipped Outbox; rendezvous_world_agents.cpp is its driver: the session, processes, ports and the
// job's setup. rendezvous_world_rules.cpp is what must hold at every step.
#pragma once

#include "daemon/control/machine/job_machine.hpp"
#include "job/agent/machine/node_machine.hpp"
#include "job/agent/node/outbox.hpp"
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

// Of a world that is too large for WORLD: its table's, and what only that says.
std::string digest_of(std::int32_t generation);
std::string host_of(std::int32_t generation);

// Nothing: the daemon ends the connection.
using FromDaemon = std::optional<wire::DaemonMessage>;

struct Node {
    explicit Node(std::int32_t which = 0);

    std::int32_t incarnation = 0;
    NodeMachine machine;
    Outbox outbox;
    bool alive = true;
    bool frozen = false;                                    // does nothing, its ranks go on
    AgentPtr link{};                                        // nullptr: not connected
    std::chrono::steady_clock::time_point cut_off_until{};  // it cannot connect before
    std::deque<wire::AgentMessage> out{};
    std::deque<FromDaemon> in{};
    std::vector<wire::DaemonMessage> obeyed{};  // over this connection

    // Its processes: one rank, and the job's setup.
    bool setup = false;
    bool had_setup = false;
    std::int32_t prepared = 0;  // this generation's rank could start; 0 = none could
    std::int32_t newest = 0;    // that was prepared here
    bool ranks = false;         // a live rank of `generation`
    std::int32_t generation = 0;
    std::int32_t rank = 0;
    bool ending = false;  // it was told to end

    bool told_to_end = false;  // the agent was
    bool leaving = false;
    bool confused = false;     // it has said what cannot be
    std::int32_t readied = 0;  // the newest generation that READY, STARTED was said of here
    std::int32_t started = 0;
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
    void deliver(const AgentPtr& link, FromDaemon message);
    void hear(const AgentPtr& link, std::int32_t slot, wire::AgentMessage message);
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
    // What an agent is about to do for this input, and has done for it.
    void check_effect(std::int32_t slot, const NodeInput& input, const NodeEffect& effect);
    void check_obeyed(std::int32_t slot, const NodeInput& input);
    bool lives(std::int32_t slot, std::int32_t generation) const;
    std::optional<std::int32_t> slot_at(const AgentPtr& link) const;
    bool is_stranger(const AgentPtr& link) const;
    std::vector<std::int32_t> members() const;

    // An agent's driver.
    void take(std::int32_t slot, NodeInput input);
    void perform(std::int32_t slot, const NodeEffect& effect, std::deque<NodeInput>& answers);
    void perform_for_ranks(std::int32_t slot, const NodeEffect& effect,
                           std::deque<NodeInput>& answers);
    void obey(std::int32_t slot, const FromDaemon& message);
    void welcome(std::int32_t slot, const wire::Welcome& welcome);
    void ranks_end(std::int32_t slot);
    // Whether it has something to say, which is in `out` then.
    bool speaks(std::int32_t slot);
    // The connection is gone for the agent; what it was.
    AgentPtr disconnect(std::int32_t slot);
    void drop(std::int32_t slot);
    void connect(std::int32_t slot);
    void start_again(std::int32_t slot);
    // One of the daemon's words comes a second time.
    void repeat(std::int32_t slot);
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
    std::uint64_t event_ = 0;  // of what strangers say
    std::int32_t boots_ = 0;   // of the coordinator
    std::array<Node, kSlots> nodes_;
    std::uint64_t request_ = 0;  // for keys
    std::int32_t strangers_sent_ = 0;
    std::vector<AgentPtr> strangers_;  // since the daemon's last start
    struct HalfOpen {
        AgentPtr link;
        std::int32_t slot;
        std::deque<wire::AgentMessage> said;
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
