// A job as the pure fold of its events: apply() moves it one event on, due() says what to do next.
// Neither does I/O, reads a clock or depends on the order of anything but the events. Effects are
// idempotent and run after the append, so they may run twice (after a crash they do).
#pragma once

#include "job/model/anomaly.hpp"
#include "job/model/command_keys.hpp"
#include "job/model/event.hpp"
#include "job/model/failure.hpp"
#include "job/model/preflight/preflight.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/spec/sweep.hpp"
#include "job/model/state.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

struct Generation {
    std::int32_t number = 0;
    std::int32_t nodes = 0;      // of an elastic job fewer than was asked for, maybe
    UnixMillis started_at = 0;   // WORLD was fixed
    UnixMillis released_at = 0;  // ranks may have run since: START may have left
    bool release_told = true;    // false: an older version recorded only when it was fixed
    UnixMillis running_at = 0;   // every rank had been started
    UnixMillis finished_at = 0;
    std::string master_address;
    std::int32_t master_port = 0;
    std::vector<std::string> addresses;  // by node rank
    std::vector<std::int32_t> ports;     // of the ranks' endpoints, by rank; empty: they have none
    std::int64_t resumed_from_step = -1;
    // The allocation's node that is each of its nodes, by node rank; empty: each is its own.
    std::vector<std::int32_t> slots;
    std::string message;     // what is special about its nodes, in words
    std::int64_t step = -1;  // the highest that a rank had reported when it ended; -1 = none
    // Exits that were reported, by rank. Clean ones are only counted and marked.
    std::vector<bool> exited;        // by rank
    std::set<std::int32_t> stopped;  // ranks that were asked to stop, with any exit code
    std::map<std::int32_t, event::RankExited> failed;  // exit code ≠ 0 or a signal
    // The failure that is to blame: by whose fault it is (failure.hpp), then by when it happened,
    // not by when we heard.
    std::optional<Cause> first_failure;
    UnixMillis first_failure_at = 0;
    FailureKind first_failure_kind = FailureKind::own;
    std::int32_t first_failed = -1;   // the rank whose end that is; -1: of none
    UnixMillis first_failed_end = 0;  // when the first of those that failed by themselves had ended
    std::int32_t left = 0;            // ranks that have ended with 0, not stopped
    std::optional<event::RankExited> first_left;    // the earliest of those
    std::optional<event::RankExited> stopped_last;  // of those stopped, the one furthest behind
    std::int64_t stopped_next_step = -1;            // where the next of them stood; -1: no other
    UnixMillis failure_heard_at = 0;                // the first of any, the daemon's clock
    std::int32_t looks = 0;                         // evidence that was taken of it
    std::int32_t profiles = 0;                      // and profiles: the newest one's number
    std::int32_t checkpoints = 0;                   // that are among the events
    std::int32_t faults = 0;                        // likewise
    std::int32_t exited_count = 0;                  // of exited
    // It hangs, as far as anybody knows: the event that says so, until the one that it is over.
    std::optional<event::AnomalySeen> hang;
    // The same of a rank that others wait for in NCCL.
    std::optional<event::AnomalySeen> desync;
    Cause cause;

    bool open() const { return finished_at == 0; }
    // The allocation's node, and back: -1 = that node has no part in this generation.
    std::int32_t slot_of(std::int32_t node_rank) const;
    std::int32_t node_rank_of(std::int32_t slot) const;
};

struct NodeClaim {
    std::string node;
    std::string incarnation;
    std::int64_t pid = 0;
};

// All processes of an allocation stood still, by the scheduler's doing.
struct Suspension {
    UnixMillis from = 0;
    UnixMillis to = 0;  // 0: they still do
};

struct Attempt {
    std::int32_t number = 0;
    std::string scheduler_id;
    std::string ticket_hash;
    std::string directory;
    std::string allocation;        // in which the agents that claimed it run; "" = not claimed yet
    std::int32_t submissions = 0;  // intents to hand it to the scheduler
    UnixMillis submitting_at = 0;  // of the last of them
    std::string held_reason;       // "" = not held
    UnixMillis created_at = 0;
    UnixMillis placed_at = 0;
    UnixMillis finished_at = 0;
    // An allocation has as many slots as nodes; which of them the ranks run on is the generation's
    // matter. Without spares a slot's number is its node rank.
    std::map<std::int32_t, NodeClaim> claims;  // by slot
    std::map<std::int32_t, Cause> lost;        // slots that are not to be used any more, and why
    std::set<std::int32_t> absent;             // of those: may come back, as far as they go
    std::map<std::int32_t, std::int32_t> returns;  // slots that did, how often
    std::optional<Cause> last_lost;                // of those, the newest
    UnixMillis claimed_at = 0;                     // the last node called in
    std::int32_t refused = 0;                      // agents that were sent away
    std::vector<event::GpuXid> xids;               // errors of its GPUs, the first kXidEvents
    std::vector<Generation> generations;
    std::vector<PreflightFinding> preflight;  // at most limits::kPreflightEvents
    bool preflight_passed = false;            // only said if nothing but the pre-flight was wanted
    std::optional<Cause> fault;               // of the attempt, outside any generation
    bool unwatched = false;                   // it is that no lockstepd was there for its agents
    std::int32_t stray_faults = 0;            // that ended no generation and cost no node
    std::vector<Suspension> suspensions;      // in order, at most limits::kSuspensions
    Cause cause;

    void take_preflight(const event::PreflightSeen& seen);
    // A lost node that may still come back.
    bool may_return(std::int32_t slot) const;
    bool suspended() const { return !suspensions.empty() && suspensions.back().to == 0; }
};

struct Job {
    JobId id;
    std::string user;
    JobSpec spec;
    std::vector<std::string> warnings;
    JobState state = JobState::accepted;
    UnixMillis submitted_at = 0;
    UnixMillis started_at = 0;  // ranks ran for the first time
    UnixMillis finished_at = 0;
    UnixMillis cancel_requested_at = 0;
    std::string cancel_requested_by;
    std::string restart_requested_by;  // "" = no; holds until the generation has ended
    std::string restart_reason;        // of Lockstep itself; "" = a person's wish
    CommandKeys command_keys;
    // Keys that were noted for a restart on its way, which began without them.
    std::size_t keys_joining = 0;
    std::optional<SweepMember> sweep;
    std::string signature;         // "" = none is asked for where it runs
    std::optional<Cause> blocked;  // it will never start: a job it waited for has not succeeded
    std::int64_t checkpoint_step = -1;  // newest complete one
    std::string checkpoint_path;
    UnixMillis checkpoint_at = 0;
    std::array<std::int64_t, kAnomalyKinds> anomalies{};  // how often each has begun
    std::int64_t step = -1;                               // at the end
    Cause cause;
    std::vector<Attempt> attempts;
    Seq last_seq = 0;

    const Attempt* attempt() const { return attempts.empty() ? nullptr : &attempts.back(); }
    // The newest generation of the newest attempt, or nullptr.
    const Generation* generation() const;
    // The same if it has not ended.
    const Generation* live_generation() const;
    // Nodes and ranks of the newest generation; before there is one, those that were asked for.
    std::int32_t nodes() const;
    std::int32_t world_size() const { return nodes() * spec.ranks_per_node(); }
    // The agent that has (had) a node of the newest generation, or nullptr.
    const NodeClaim* claim_of_node(std::int32_t node_rank) const;
};

// The job of a `submitted` event; corrupt if its spec does not parse any more.
Result<Job> start_job(const Event& submitted);
// The job after the event. conflict: the event has no place in this state, or names an attempt,
// generation or rank that is not current; the job is unchanged then.
Status apply(Job& job, const Event& event);

enum class ActionKind : std::uint8_t {
    create_attempt,  // ticket, directory, append attempt_created
    place,           // hand to the scheduler, watch it
    gather,          // agents are calling in: form a generation once all are there
    watch,           // ranks run: nothing to do but to listen
    // Something failed that is recovered from in the same allocation: stop the ranks, append
    // generation_ended; then gather forms the next one.
    restart,
    // The same in another allocation: stop the ranks, end this one, append attempt_ended.
    next_attempt,
    // Something failed, somebody cancelled, or the ranks that end the job have ended: stop the
    // (other) ranks, end the allocation.
    stop,
    conclude,  // every rank has ended: append generation_ended, attempt_ended, finished
    none,      // final
};
std::string_view to_string(ActionKind kind);

struct Action {
    ActionKind kind = ActionKind::none;
    Cause cause;  // restart, next_attempt, stop: why
    // Append this first (a deadline passed): a fault that apply() will take as the cause.
    std::optional<event::FaultSeen> fault;
};

// How long ago that was which a job's deadlines count from, as its daemon has measured it: the wall
// time of an event says it only as long as nobody sets the clock (daemon/control/machine/
// wait_clock.hpp). Nodes could not call in, nor meet, while no daemon was there, so nothing of that
// time counts; but it does for the time limit, as all that has run. Of what has not happened: 0.
struct Waited {
    std::chrono::milliseconds ran{0};     // the newest attempt got its nodes
    std::chrono::milliseconds placed{0};  // the same, as far as a daemon was there
    std::chrono::milliseconds formed{0};  // its newest generation was fixed
    std::chrono::milliseconds ended{0};   // that generation has ended
    std::chrono::milliseconds failed{0};  // the first failure in it was heard
};
// What the job needs then. When a fault is, is the caller's to say. Pure.
Action due(const Job& job, const Waited& waited);

// Whether every rank of a role that ends the job (spec.hpp) has ended by itself with 0: the job has
// succeeded then, whatever becomes of the others. Where only the pre-flight was wanted: it passed.
bool work_done(const Job& job);

// How the job ends if every rank and node has now ended: state and cause for `finished`.
event::Finished outcome(const Job& job);

// Every rank of the newest generation has ended, as was heard.
bool all_ranks_ended(const Job& job);
// The same for one of its nodes.
bool node_ended(const Job& job, std::int32_t node_rank);
// What a rank's end, or a fault, is called as a cause. Of a job, the message also says what it
// should ask for, where the rank's error is known to come of that.
Cause cause_of(const event::RankExited& exit);
Cause cause_of(const Job& job, const event::RankExited& exit);
Cause cause_of(const event::FaultSeen& fault);
// What first_cause() (echo.hpp) needs to know of each rank that ends: there may be many. Once for
// each.
void note_end(Generation& generation, const event::RankExited& exit);
// With the other ranks of the newest generation that have failed, if the cause is one of its ranks.
Cause with_others(const Job& job, Cause cause);

}  // namespace lockstep
