// What a job's machine wants done, as data: its driver does it, in this order, a test reads it.
// Values; control thread only.
#pragma once

#include "daemon/control/machine/agent.hpp"
#include "daemon/control/machine/job_input.hpp"
#include "job/base/result.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace effect {

struct Send {
    AgentPtr to;
    wire::DaemonMessage message;
};
// One text that many agents get, encoded once.
struct SendShared {
    AgentPtr to;
    std::shared_ptr<const std::string> text;
};
// WELCOME: it has what the machine does not know, secrets among it.
struct Greet {
    AgentPtr to;
};
struct Close {
    AgentPtr link;
    std::string reason;
};
// That an event of the agent was heard, at once.
struct Acknowledge {
    AgentPtr to;
    std::uint64_t event;
};
// To a command that is not answered with the append.
struct Answer {
    std::function<void(Status)> done;
    Status status;
};
// To the scheduler: whose the attempt is from now on.
struct Claimed {
    std::int32_t attempt;
    std::string allocation;
};
// To the scheduler: how the attempt's allocation ends is wanted soon.
struct ExpectEnd {
    std::int32_t attempt;
};
// To the scheduler: nothing is asked about the attempt any more.
struct AttemptOver {
    std::int32_t attempt;
};
// The job is looked at again, behind all inputs.
struct LookAgain {};
// Taken before all other inputs.
struct HearAgain {
    AgentInput input;
};

}  // namespace effect

using Effect = std::variant<effect::Send, effect::SendShared, effect::Greet, effect::Close,
                            effect::Acknowledge, effect::Answer, effect::Claimed, effect::ExpectEnd,
                            effect::AttemptOver, effect::LookAgain, effect::HearAgain>;

// Nothing happens before the driver takes them.
class Effects {
  public:
    void send(AgentPtr to, wire::DaemonMessage message) {
        list_.emplace_back(effect::Send{std::move(to), std::move(message)});
    }
    template <class E>
    void add(E one) {
        list_.emplace_back(std::move(one));
    }
    const std::vector<Effect>& list() const { return list_; }
    // In the order in which they are to happen.
    std::vector<Effect> take() { return std::exchange(list_, {}); }

  private:
    std::vector<Effect> list_;
};

}  // namespace lockstep
