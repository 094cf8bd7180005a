// What a node's machine wants done, as data: its driver does it, in this order, a test reads it.
// Values; agent thread only.
#pragma once

#include "job/model/state.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

namespace node_effect {

// ---- to the daemon: see Outbox, whose three kinds of messages these are
struct Send {  // lost with the connection
    wire::AgentMessage message;
};
struct SendLast {  // the same, behind all that was said so far
    wire::Join join;
};
struct Report {  // kept until it is acknowledged
    std::variant<wire::Exited, wire::Fault, wire::Warned, wire::Done, wire::Bye> event;
};
// The rows that ranks have reported so far.
struct SendRows {};
// Key requests without an answer; `lost`: the daemon has restarted and has no keys.
struct AskKeysAgain {
    bool lost = false;
};

// ---- a generation
// node_input::PortsHeld or PortsMissing follows.
struct HoldPorts {};
// The same numbers as before, now that no rank has them.
struct HoldPortsAgain {};
// What is there of the generation before is of no more use, its result file among it.
struct BeginGeneration {
    std::int32_t generation = 0;
};
// All that can be wrong is to be found here, before any rank starts anywhere.
// node_input::RanksPrepared follows.
struct PrepareRanks {
    wire::World world;  // with its table
};
struct DropRanks {};  // that were prepared
// Those that were prepared last. node_input::RanksStarted or RanksNotStarted follows.
struct StartRanks {};
// TERM now, KILL after `grace`. node_input::RankExited and RanksEnded follow.
struct StopRanks {
    std::chrono::milliseconds grace{};
};
// node_input::ResultSaved follows.
struct SaveResult {
    wire::ResultFile result;
};

// ---- beside the ranks
struct BeginPreflight {};
// No other node asks for this one's address any more.
struct NoMorePeers {};
struct EndSetup {};
struct EndStandbys {};   // no generation follows
struct StopEvidence {};  // and what is recorded of ranks
// EXAMINED: what the living ranks do is not in it yet; their evidence follows.
struct Examine {
    wire::Examine asked;
    wire::Examined examined;
    std::vector<wire::StartedRank> living;
};
// PROFILED follows: what these ranks of the node do for some seconds.
struct Profile {
    wire::Profile asked;
    std::vector<wire::StartedRank> living;
};
// CAN_SAVE: whether all ranks catch the signal for a checkpoint; that they get it; and that they
// get it once they catch it, with SAVE_ASKED.
struct LookForSignal {
    wire::AskSave asked;
    bool running = false;
};
struct SignalRanks {};
struct WarnRanks {
    std::int32_t generation = 0;
};

// ---- the end
// A file says why, whoever may read it.
struct LeaveLastWords {
    std::string reason;
};
// node_input::LeavingBegun follows if the attempt is over (`settle`), then LeavingLook, again and
// again until Exit.
struct Leave {
    bool settle = true;
};
// LeavingLook is wanted now.
struct LookAtLeaving {};
// What the attempt has come to: the file of job/base/attempt_end.hpp.
struct SaveOutcome {
    JobState outcome = JobState::succeeded;  // or cancelled
};
struct Exit {
    int code = 0;
};

}  // namespace node_effect

using NodeEffect =
    std::variant<node_effect::Send, node_effect::SendLast, node_effect::Report,
                 node_effect::SendRows, node_effect::AskKeysAgain, node_effect::HoldPorts,
                 node_effect::HoldPortsAgain, node_effect::BeginGeneration,
                 node_effect::PrepareRanks, node_effect::DropRanks, node_effect::StartRanks,
                 node_effect::StopRanks, node_effect::SaveResult, node_effect::BeginPreflight,
                 node_effect::NoMorePeers, node_effect::EndSetup, node_effect::EndStandbys,
                 node_effect::StopEvidence, node_effect::Examine, node_effect::Profile,
                 node_effect::LookForSignal, node_effect::SignalRanks, node_effect::WarnRanks,
                 node_effect::LeaveLastWords, node_effect::Leave, node_effect::LookAtLeaving,
                 node_effect::SaveOutcome, node_effect::Exit>;
using NodeEffects = std::vector<NodeEffect>;

}  // namespace lockstep
