// An agent's connection as its job knows it. What goes over it is the connection's matter: the
// job's machine only says what, and to whom (effect.hpp). Shared by the connection and its job;
// control thread only.
#pragma once

#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

class Agent {
  public:
    Agent(std::int32_t attempt, std::string remote)
        : attempt_(attempt), remote_(std::move(remote)) {}
    virtual ~Agent() = default;
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;

    // Whose ticket it has.
    std::int32_t attempt() const { return attempt_; }
    // The address it comes from.
    const std::string& remote() const { return remote_; }
    bool open() const { return open_; }

    // The allocation's node, set by the connection when HELLO comes, and good once `accepted`; -1
    // before. Which node of a generation it is, the generation says.
    std::int32_t node_rank = -1;
    std::string node;
    std::string incarnation;
    std::int64_t pid = 0;
    bool profiles = false;        // it answers PROFILE
    std::int32_t generation = 0;  // of a lost node: what it said that it had ranks of, or had had
    wire::Join join;
    bool done = false;  // every rank of the node has ended
    bool stop_sent = false;
    // ABORT of the live generation, over this connection.
    std::optional<std::chrono::steady_clock::time_point> abort_sent;
    bool hello_pending = false;  // HELLO is being made durable
    bool accepted = false;       // HELLO is durable: this is the node's agent
    // Among the connections of its ticket that are not accepted; nullptr: not one of them (any
    // more).
    std::shared_ptr<void> place;
    // The node's clock minus the daemon's, as the agent measures it all the time (BEAT, CLOCK):
    // what is to be subtracted from a time of that node before it is compared with another's.
    struct ClockOffset {
        std::int64_t offset_us = 0;
        std::int64_t error_us = 0;  // at most so far wrong
    };
    std::optional<ClockOffset> clock_offset;  // nothing: not measured yet
    std::chrono::steady_clock::time_point last_heard;
    std::chrono::steady_clock::time_point since;  // it is the node's agent

  protected:
    void closed() { open_ = false; }

  private:
    std::int32_t attempt_;
    std::string remote_;
    bool open_ = true;
};

using AgentPtr = std::shared_ptr<Agent>;

}  // namespace lockstep
