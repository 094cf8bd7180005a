// A job as it will be: what an input makes of it, before any of it is durable.
//
//   input → draft (copy of the job + new events) → append (fsync) → job = draft → effects
//
// Values; control thread only.
#pragma once

#include "daemon/control/machine/effect.hpp"
#include "daemon/control/machine/surroundings.hpp"
#include "job/model/invariants.hpp"
#include "job/model/job.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

// What becomes of the machine once the draft's events are durable, in this order.
namespace after {

struct Claim {  // HELLO of its node's agent
    AgentPtr link;
    std::int32_t attempt;
    std::int32_t running;  // the generation whose ranks live there; 0 = none
    bool capable;          // of a pre-flight
    std::string allocation;
};
struct Revisit {  // HELLO of a lost node's
    AgentPtr link;
    bool capable;
};
struct Return {  // JOIN of a lost node: it counts again
    AgentPtr link;
    wire::Join join;
};
struct Done {
    AgentPtr link;
};
struct Keys {
    AgentPtr link;
    wire::KeyRequest request;
};
// What its agent still says does not count. One that may come back is not told to go: what it
// would be told may reach it when it is heard again.
struct GiveUp {
    std::int32_t slot;
    bool may_return;
};
struct Form {
    std::vector<std::int32_t> slots;  // by node rank
};
struct SendWorld {
    AgentPtr link;
};
struct Release {
    std::int32_t generation;
};
struct StartAgain {
    AgentPtr link;
};
struct EvidenceUsed {
    bool acted_on;  // a hang that is ended
};
struct ProfileTold {};  // the profile that was under way is among the events
struct OrderSave {
    std::int32_t generation;
};
struct TimeLimitTold {
    bool deaf;  // the event names a rank
};
struct GenerationOver {};
struct AttemptEnded {
    std::int32_t attempt;
};

}  // namespace after

using After =
    std::variant<after::Claim, after::Revisit, after::Return, after::Done, after::Keys,
                 after::GiveUp, after::Form, after::SendWorld, after::Release, after::StartAgain,
                 after::EvidenceUsed, after::ProfileTold, after::OrderSave, after::TimeLimitTold,
                 after::GenerationOver, after::AttemptEnded>;

// While nothing has happened to the job, it is the one that is: most of what agents say makes no
// event, and a large job is not copied for it.
class Draft {
  public:
    // Both outlive it.
    Draft(const Job& now, const Surroundings& at_) : at(at_), now_(&now) {}

    const Job& job() const { return own_ ? *own_ : *now_; }
    // As it is on disk.
    const Job& before() const { return *now_; }
    Job& own();

    // Adds the event if it has a place there. What has none is stale or a repeat: false.
    bool add(EventData data);
    // Said once, however often it comes up.
    void warn(const std::string& message, const std::string& node = "");
    // Of a node whose loss was added (loss_watch.hpp).
    void give_up(std::int32_t slot, bool may_return = false);
    // The events from there on are found only once, where they come from: if the append fails they
    // are kept for the next draft (JobMachine::not_stored()).
    void found_once(std::size_t from);
    // Adds one of these, and the loss of its node if it is that.
    void find_again(EventData data);
    // Takes the events out, which all were found before, and the first of what follows.
    void put_off(std::size_t follows);
    void hear(AgentPtr link, std::uint64_t event) { heard.emplace_back(std::move(link), event); }
    // What the agent still says does not count: it is told why, and let go.
    void fence(const AgentPtr& link, std::string why);

    const Surroundings at;
    std::vector<Event> events;
    Effects at_once;           // before the append: nothing of them depends on it
    std::vector<After> after;  // once the events are durable
    std::vector<std::function<void(Status)>> answers;
    // What agents are told was heard, after the append: each once, however much it was.
    std::vector<std::pair<AgentPtr, std::uint64_t>> heard;
    // What this draft cannot take yet: goes before the inputs once it is stored.
    std::vector<JobInput> deferred;
    // Steps that were not taken, for they would break a promise.
    std::vector<std::pair<Invariant, Event>> broken;
    std::vector<EventData> once;  // of the events, those that are found only once
    // The input that was taken last is done with, at once: it is not taken again if the append
    // fails.
    bool answered = false;
    bool starts = false;  // START to whoever is ready is among what follows

  private:
    const Job* now_;
    std::unique_ptr<Job> own_;
};

// FENCED, and the end of the connection.
void fence(Effects& effects, const Job& job, const AgentPtr& link, std::string why);

}  // namespace lockstep
