// What can happen to a job, one at a time: the words of its agents, commands, and looks at it.
// Values; control thread only.
#pragma once

#include "daemon/control/machine/agent.hpp"
#include "job/base/result.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

struct AgentInput {
    AgentPtr link;
    wire::AgentMessage message;
};
struct AgentGoneInput {
    AgentPtr link;
};
struct CancelInput {
    std::string by;
    std::function<void(Status)> done;  // after it is durable (or could not be made so)
};
struct RestartInput {
    std::string by;
    std::function<void(Status)> done;  // conflict: nothing runs that could be started again
    std::string key{};                 // Idempotency-Key; "" = none
    // Set before done() if it had been done already, under this key.
    std::shared_ptr<bool> repeated{};
};
struct SaveInput {
    std::string by;
    // conflict: no rank runs, or one would die of the signal; else the agents have been told.
    std::function<void(Status)> done;
    std::string key{};  // as above
    std::shared_ptr<bool> repeated{};
};
struct EvidenceInput {
    std::string by;
    std::function<void(Status)> done;  // conflict: no rank runs; else the agents have been asked
};
// What of a profile was asked for; filled in before ProfileInput::done is called with success.
struct ProfileAsked {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int32_t number = 0;
    std::vector<std::int32_t> ranks{};
    std::chrono::seconds patience{};  // it is among the events by then, or never
};
struct ProfileInput {
    std::string by;
    // conflict: no rank runs, or another one is under way; invalid: no such rank; else the agents
    // have been asked.
    std::function<void(Status)> done;
    std::vector<std::int32_t> ranks{};  // ascending; empty = the first ones
    std::int64_t seconds = 0;
    std::shared_ptr<ProfileAsked> asked{};  // not null
};
struct DependencyInput {
    std::string after;  // a job that it was to run after, and that has not succeeded
};
struct LookInput {};  // the scheduler may have news
using JobInput = std::variant<AgentInput, AgentGoneInput, CancelInput, RestartInput, SaveInput,
                              DependencyInput, LookInput, EvidenceInput, ProfileInput>;

}  // namespace lockstep
