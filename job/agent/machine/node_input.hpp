// What a node's machine takes, as data: orders of the daemon, and what its driver has seen.
// Values; agent thread only.
#pragma once

#include "job/model/state.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

// What the protocol depends on of a job's specification.
struct NodeJob {
    bool endpoints = false;  // every rank has one of its own (needs_endpoints())
    bool fixed = true;       // no node comes later: neither spares nor an elastic job's
};

namespace node_input {

// A connection is there. Without `job` the specification is not understood, for `problem`.
struct Welcomed {
    std::string daemon;           // random per start of lockstepd
    std::int32_t generation = 0;  // the newest that the daemon knows
    bool preflight = false;       // CHECKED is wanted
    std::optional<NodeJob> job;
    std::string problem{};
};
struct Disconnected {};

// Answers node_effect::HoldPorts: all of JOIN but its generation. Without ports there is no JOIN.
struct PortsHeld {
    wire::Join join;
};
struct PortsMissing {
    std::string why;
};

// The job's setup runs; no rank can be prepared before it has ended, well or badly.
struct SetupBegun {};
struct SetupEnded {};

// Answers node_effect::PrepareRanks; `problem`: why none of them can start, "" = all can.
struct RanksPrepared {
    std::string problem;
    CauseClass cause = CauseClass::user_error;  // of the problem
};
// Answers node_effect::StartRanks, at once or (launch task) once all of them are there.
struct RanksStarted {
    std::int32_t generation = 0;
    std::vector<wire::StartedRank> ranks;
};
// The same if some did not start. `running`: some did, and RanksEnded follows.
struct RanksNotStarted {
    CauseClass cause = CauseClass::user_error;
    std::string why;
    bool running = false;
};
// Of launch node: which process is which rank is known better than before.
struct RanksChanged {
    std::vector<wire::StartedRank> ranks;
};
struct RankExited {
    wire::Exited exited;
};
// No process of the generation's ranks lives here.
struct RanksEnded {};
// node_effect::SaveResult has been done, of this generation.
struct ResultSaved {
    std::int32_t generation = 0;
};

// Something is wrong with this node or a rank (-1: no single one), or its user should know it.
struct FaultSeen {
    std::int32_t rank = -1;
    CauseClass cause = CauseClass::internal;
    std::string message;
};
struct WarningSeen {
    std::int32_t rank = -1;
    std::string message;
};

// The scheduler says that the time limit is near.
struct TimeLimitNear {};
// The agent is told to end, or nobody would end it with its job. `farewell`: why it goes although
// its job may go on; "" = its job is over.
struct ShutDown {
    std::chrono::milliseconds grace{};
    std::string farewell{};
};
// The daemon does not let this agent in.
struct Refused {
    std::string why;
};
// No daemon for too long, and no ranks.
struct Orphaned {
    std::string why;
};

// Answers node_effect::Leave. `speaks_for_another`: a result of this node lies there that this
// agent has not written.
struct LeavingBegun {
    bool speaks_for_another = false;
};
// While it leaves: something has changed, or leave_until() is here. `settled`: all that it has said
// was acknowledged.
struct LeavingLook {
    bool settled = false;
};

}  // namespace node_input

using NodeInput =
    std::variant<wire::World, wire::Table, wire::Start, wire::Abort, wire::Stop, wire::Examine,
                 wire::Profile, wire::AskSave, wire::Save, wire::Fenced, node_input::Welcomed,
                 node_input::Disconnected, node_input::PortsHeld, node_input::PortsMissing,
                 node_input::SetupBegun, node_input::SetupEnded, node_input::RanksPrepared,
                 node_input::RanksStarted, node_input::RanksNotStarted, node_input::RanksChanged,
                 node_input::RankExited, node_input::RanksEnded, node_input::ResultSaved,
                 node_input::FaultSeen, node_input::WarningSeen, node_input::TimeLimitNear,
                 node_input::ShutDown, node_input::Refused, node_input::Orphaned,
                 node_input::LeavingBegun, node_input::LeavingLook>;

}  // namespace lockstep
