// What the daemon knows of an attempt beside its events, for as long as that lives: assigning a
// fresh one forgets the last one's agents and allocation whole. Value; control thread only.
#pragma once

#include "daemon/control/machine/agent.hpp"
#include "daemon/control/machine/allocation_watch.hpp"
#include "daemon/control/machine/effect.hpp"
#include "daemon/control/machine/generation_run.hpp"
#include "daemon/control/machine/missing_nodes.hpp"
#include "daemon/control/machine/pair_state.hpp"
#include "daemon/control/machine/preflight_state.hpp"
#include "daemon/control/machine/rendezvous.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

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

// Whether an agent speaks of the job's live generation.
bool is_current(const Job& job, const Agent& link, std::int32_t generation);

struct AttemptRun {
    using Time = std::chrono::steady_clock::time_point;

    // As far as the job's events go: the newest attempt if it has not ended, else the next.
    explicit AttemptRun(const Job& job);

    // attempt_run.cpp; `now`: Surroundings::steady.
    void disconnected(std::int32_t slot, Time now);
    static bool wants_preflight(const Job& job) {
        return job.spec.preflight.mode != PreflightMode::off;
    }
    // Before the first generation of an attempt only: ranks that ran have tested their nodes.
    static bool pairs_wanted(const Job& job, PairState::Kind kind);
    bool pairs_done(const Job& job) const {
        return (!pairs_wanted(job, PairState::Kind::cpus) || pairs.done()) &&
               (!pairs_wanted(job, PairState::Kind::nccl) || nccl_pairs.done());
    }
    // What a pre-flight is to expect of an agent that has just been accepted.
    void expect_facts(const Job& job, const Agent& link, bool capable, Time now);
    // Ranks of the live generation ask for rendezvous keys; others are fenced.
    void answer_key_request(Effects& out, const Job& job, const AgentPtr& link,
                            const wire::KeyRequest& request, const Surroundings& at);
    // Whoever waits in vain for one is answered.
    void expire_keys(Effects& out, Time now);
    bool may_start(std::int32_t slot) const;
    // Whether ranks may still run on that node of the live generation, as far as was heard.
    bool may_have_ranks(const Job& job, std::int32_t node) const;
    bool ranks_are_left(const Job& job) const;
    // Where the node's ranks are to be found.
    std::string address_of(const Job& job, std::int32_t slot) const;
    std::int64_t newest_checkpoint(const Job& job) const;

    // silence.cpp: who is not heard any more.
    // When an agent was last heard; nothing: it has not been here in this daemon's life.
    std::optional<Time> heard(std::int32_t slot) const;
    // Whether an agent that has claimed the slot was not heard by this lockstepd yet, and has not
    // had the time to find it: it was started a moment ago.
    bool may_still_come(const Attempt& attempt, std::int32_t slot, Time now) const;
    // The same of any node whose ranks are not done.
    bool somebody_may_still_come(const Job& job, Time now) const;
    // An agent that has just lost its connection comes back and tells what happened; only after
    // that its files speak for it.
    bool gone_for_good(std::int32_t slot, Time now) const;
    void restart_silence_timers(Time now);
    // Nodes that wait as spares and were heard a moment ago.
    std::int32_t spares_at_hand(Time now) const;
    // Nodes of the live generation that it could go on without. Negative: so many spares have to
    // take the places of those that are lost.
    static std::int32_t nodes_to_spare(const Job& job);
    // Nodes that could be taken into a larger generation, lowest first.
    std::vector<std::int32_t> more_nodes(const Job& job, Time now) const;
    // Whether a node of the live generation whose ranks are not done is away, or has not been heard
    // since then.
    bool somebody_silent_since(const Job& job, Time time) const;
    // Whether a node whose ranks are not done has been silent since before that time.
    bool silent_before(const Job& job, Time time, Time now) const;
    // The node that was silent first and has not said that it goes; nothing: all are heard, or
    // none has been in this daemon's life.
    std::optional<std::int32_t> longest_silent(const Attempt& attempt, Time now) const;
    // When the node was last heard, or said that it goes; nothing: not in this daemon's life.
    std::optional<Time> last_sign(const Attempt& attempt, const std::string& node) const;
    // What people call the node: its claim's name, else the scheduler's, else "node 3".
    std::string name_of(const Job& job, std::int32_t slot) const;
    // " (n4: error: no such file)" of the nodes that have not called in, as far as there is
    // something to say beside their numbers; "" if there is nothing.
    std::string absent_words(const Job& job) const;
    // Why the others wait for it; "" if it is where they are.
    std::string why_missing(const Job& job, std::int32_t slot, Time now) const;

    // By slot: the agent whose HELLO is durable. A slot is in `links` or in `gone`, never in both;
    // in neither it has not been here in this daemon's life.
    std::map<std::int32_t, AgentPtr> links{};
    std::map<std::int32_t, Time> gone{};            // since
    std::set<std::int32_t> unheard{};               // of `gone`: not heard in this daemon's life
    std::map<std::int32_t, Farewell> left{};        // by slot
    std::map<std::int32_t, std::string> refused{};  // by slot: why its agent was sent away last
    MissingNodes missing{};
    // By slot: the nodes that the scheduler gave; empty until it has named all of them.
    std::vector<std::string> given{};
    // By slot: what the scheduler's own daemons said of an agent that did not come.
    std::map<std::int32_t, std::string> launch_words{};
    std::optional<Time> launch_looked{};  // for those, last
    // It is handed in again: what was learned of its nodes is of others.
    void forget_nodes() {
        given.clear();
        launch_words.clear();
        launch_looked.reset();
    }
    Rendezvous rendezvous;
    PreflightState preflight{};
    PairState pairs{};
    PairState nccl_pairs{PairState::Kind::nccl};  // after `pairs`
    std::optional<Time> joined_at{};              // the last node that did
    // The newest checkpoint that was heard of; events may not tell of it yet.
    std::optional<event::CheckpointSaved> checkpoint{};
    // Of the ranks that were started last, by rank; pid 0 = not known. Outlives their generation,
    // so that they can be named until the next one is fixed.
    std::vector<wire::StartedRank> processes{};
    GenerationRun generation;
    AllocationWatch allocation{};

    bool submitted = false;           // the scheduler has the attempt, in this daemon's life
    bool intent_fresh = false;        // an intent is on disk that no try has used yet
    bool queue_checked = false;       // the kernel's, of connections, for that many nodes
    std::size_t claims_compared = 0;  // with what the scheduler has given it
    // One of them is of a node that it has not, by what it said last, since then.
    std::optional<Time> foreign_since{};
    std::optional<Time> verdict_since{};
    std::optional<StopRun> stopping{};
    // The allocation is over and agents are heard since then.
    std::optional<Time> outlived_since{};
};

}  // namespace lockstep
