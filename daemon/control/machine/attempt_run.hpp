// What the daemon knows of an attempt beside its events, for as long as that lives: assigning a
// fresh one forgets the last one's agents and allocation whole. Value; control thread only.
#pragma once

#include "daemon/control/machine/generation_run.hpp"
#include "daemon/control/machine/pair_state.hpp"
#include "daemon/control/machine/preflight_state.hpp"
#include "daemon/control/machine/rendezvous.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"
#include "job/model/wire.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class AgentLink;

// An agent has said BYE, in this daemon's life.
struct Farewell {
    std::string reason;
    std::chrono::steady_clock::time_point at;
};

// What runs is being ended: STOP goes to every agent, then the allocation is ended by force.
struct StopRun {
    std::chrono::steady_clock::time_point since;
    std::optional<std::chrono::steady_clock::time_point> alone_since{};  // no agent is here
    bool cancelled = false;  // the scheduler was told to end the allocation
};

// Nodes are waited for.
struct MissingRun {
    std::optional<std::chrono::steady_clock::time_point> since{};  // none: for nobody
    std::chrono::steady_clock::time_point viewed{};                // last looked for
    std::chrono::steady_clock::time_point logged{};
    bool told = false;  // the job's pending reason says it
};

struct AttemptRun {
    using Time = std::chrono::steady_clock::time_point;

    // As far as the job's events go: the newest attempt if it has not ended, else the next.
    explicit AttemptRun(const Job& job);

    // By slot: the agent whose HELLO is durable. A slot is in `links` or in `gone`, never in both;
    // in neither it has not been here in this daemon's life.
    std::map<std::int32_t, std::shared_ptr<AgentLink>> links{};
    std::map<std::int32_t, Time> gone{};            // since
    std::set<std::int32_t> unheard{};               // of `gone`: not heard in this daemon's life
    std::map<std::int32_t, Farewell> left{};        // by slot
    std::map<std::int32_t, std::string> refused{};  // by slot: why its agent was sent away last
    MissingRun missing{};
    Rendezvous rendezvous;
    PreflightState preflight{};
    PairState pairs{};
    std::optional<Time> joined_at{};  // the last node that did
    // The newest checkpoint that was heard of; events may not tell of it yet.
    std::optional<event::CheckpointSaved> checkpoint{};
    // Of the ranks that were started last, by rank; pid 0 = not known. Outlives their generation,
    // so that they can be named until the next one is fixed.
    std::vector<wire::StartedRank> processes{};
    GenerationRun generation;

    bool submitted = false;           // the scheduler has the attempt, in this daemon's life
    bool intent_fresh = false;        // an intent is on disk that no try has used yet
    bool was_paused = false;          // the scheduler had suspended it when it was last asked
    std::size_t claims_compared = 0;  // with what the scheduler has given it
    std::optional<Time> verdict_since{};
    std::optional<StopRun> stopping{};
    // The allocation is over and agents are heard since then.
    std::optional<Time> outlived_since{};
};

}  // namespace lockstep
