// What happened to a job, in order. The append-only list of these is the truth; the job is its fold
// (job.hpp). Plain values; any thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/ids.hpp"
#include "job/base/json.hpp"
#include "job/model/state.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

// Who or what ended something. The first failure of a generation is the cause, the rest its echo.
struct Cause {
    CauseClass kind = CauseClass::none;
    std::string message;
    std::int32_t rank = -1;  // -1: no single rank
    std::string node;
    std::int32_t exit_code = -1;  // -1: did not exit by itself
    std::int32_t signal = 0;
    std::string log_tail;
    // The exception that ended the rank; "" = none is known.
    std::string error_type{};
    std::string error{};
    std::string traceback{};
    // The other ranks that failed: [{rank, node, exit_code or signal, failure, error}], by the
    // moment they did; at most limits::kOthersNamed. Null: none is known.
    Json others{};
    std::int64_t others_total = 0;
    bool operator==(const Cause&) const = default;
};

namespace event {

struct Submitted {
    std::string user;
    Json spec;                          // canonical
    std::vector<std::string> warnings;  // from the scheduler's admission
    // A job of a sweep (sweep.hpp); "" = it is of none.
    std::string sweep{};
    std::int64_t sweep_index = 0;
    std::int64_t sweep_size = 0;
    std::int64_t sweep_parallel = 0;
    Json sweep_parameters{};  // as shown: SweepPoint
    std::string
        signature{};  // what its user's is called (signed_statement.hpp); "" = there is none
};
struct AttemptCreated {  // the intent: on disk before the scheduler is asked
    std::int32_t attempt = 0;
    std::string ticket_hash;  // SHA-256 of the agents' ticket
    std::string directory;
};
// The attempt is about to be submitted to the scheduler. On disk before it is: whatever comes of
// it, even a crash of this daemon, there may be something to find.
struct AttemptSubmitting {
    std::int32_t attempt = 0;
    std::int32_t number =
        1;  // 1, 2, …: more than one only if what came before cannot come any more
};
struct AttemptSubmitted {  // the scheduler has it in its queue
    std::int32_t attempt = 0;
    std::string scheduler_id;
};
struct Held {  // waits for a person
    std::int32_t attempt = 0;
    std::string reason;
};
struct Released {
    std::int32_t attempt = 0;
};
struct AttemptPlaced {  // the allocation is there
    std::int32_t attempt = 0;
    std::string scheduler_id;
};
struct AgentClaimed {
    std::int32_t attempt = 0;
    std::int32_t node_rank = 0;
    std::string node;
    std::string incarnation;
    std::int64_t pid = 0;
    // The scheduler's own number of the allocation the agent runs in ("" with the local scheduler):
    // the first claim of an attempt fixes it for all of its nodes.
    std::string allocation{};
};
struct AgentRefused {  // called in with the attempt's ticket and was sent away
    std::int32_t attempt = 0;
    std::int32_t node_rank = -1;  // as it says
    std::string node;             // as it says
    std::string reason;
};
struct DependencyFailed {  // a job that it was to run after has not succeeded
    std::string after;
    std::string message;
};
struct GenerationStarted {  // on disk before WORLD leaves: its number is a fence
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::string master_address;
    std::int32_t master_port = 0;
    std::vector<std::string> addresses;  // by node rank
    std::int64_t resumed_from_step = -1;
    std::vector<std::int32_t> ports{};  // of the ranks' endpoints, by rank, if they have any
    // Which of the allocation's nodes is which node of the generation, by node rank; empty: each is
    // its own (there are no spares).
    std::vector<std::int32_t> slots{};
    // Of an elastic job: how many nodes and ranks it has, and, if that is not what the one before
    // had, or what was asked for, in words: "goes on with 3 of 4 nodes: …".
    std::int64_t nodes = 0;
    std::int64_t world_size = 0;
    std::string message{};
    // Whoever wrote it writes ranks_released before START leaves. A version before that one sent
    // START and said nothing: its ranks may have run from this moment on.
    bool release_told = false;
};
// Every node is ready. On disk before any of them hears START: without it no rank has run.
struct RanksReleased {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
};
struct RanksStarted {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int64_t warm = 0;  // ranks that were standbys (/recovery/warm_standby)
};
struct RankExited {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int32_t rank = 0;
    std::string node;
    std::int32_t exit_code = -1;
    std::int32_t signal = 0;
    bool stopped = false;
    bool oom = false;
    UnixMillis at = 0;  // when it ended, the node's clock
    std::string log_tail;
    bool launcher = false;  // so the process ended that starts the node's ranks; see wire::Exited
    std::string failure{};  // a word of FailureKind (failure.hpp); "" = own
    UnixMillis failed_at = 0;  // when it failed, the daemon's clock; 0 = `at`
    std::string error_type{};  // of the exception; "" = none is known
    std::string error{};
    std::string traceback{};
    std::int64_t step = -1;  // the last that it has reported in this generation; -1 = none
};
struct FaultSeen {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int32_t rank = -1;
    std::string node;
    CauseClass cause_class = CauseClass::internal;
    std::string message;
    UnixMillis at = 0;
    // The allocation's node that is not to be used any more in this attempt; -1: none is.
    std::int32_t slot = -1;
    // Of such a node, in an elastic job: it was not heard any more, or its agent ended. It may be
    // there again.
    bool may_return = false;
    std::string check{};  // of the pre-flight that the node has failed; "" = it is not about one
    // Of an attempt that nobody has called in from: its agents have ended while no lockstepd was
    // there to hear them.
    bool unwatched = false;
};
// A node that was lost has joined again: none of its ranks lives, and it waits for the next
// generation.
struct NodeReturned {
    std::int32_t attempt = 0;
    std::int32_t slot = -1;
    std::string node;
    std::string incarnation;  // of its agent, which may be another one
    std::int64_t pid = 0;
};
struct CheckpointSaved {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int64_t step = 0;
    std::string path;
};
struct GenerationEnded {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    Cause cause;
    std::int64_t step = -1;  // the highest that a rank has reported in it; -1 = none
};
struct AttemptEnded {
    std::int32_t attempt = 0;
    Cause cause;
};
struct CancelRequested {
    std::string by;
};
// Somebody wants the ranks started anew, from the newest checkpoint. One with a key begins nothing
// where that is on its way already, and says that it was done under this key, too.
struct RestartRequested {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::string by;
    // Lockstep itself does, because there are more nodes; "": it is a person's wish.
    std::string reason{};
    std::string key{};  // Idempotency-Key, `by`'s; "" = none
};
// Something is wrong with a run that goes on; it ends nothing.
struct AnomalySeen {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int32_t rank = -1;  // -1: the job as a whole
    std::string node;        // of the rank
    std::string anomaly;     // a word of AnomalyKind (anomaly.hpp)
    std::int64_t step = -1;
    std::string message;
    // Of a hang and of desync: since when; and that it is over, the ranks make steps again or the
    // rank has gone on, which is told, too.
    UnixMillis since = 0;
    bool over = false;
};
// The driver of a node's GPU reported a critical error: an Xid, numbered by NVIDIA.
struct GpuXid {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int32_t rank = -1;  // that used the GPU; -1: unknown
    std::string node;
    std::int32_t gpu = 0;
    std::int64_t xid = 0;
    UnixMillis at = 0;  // the node's clock
};
// What the ranks were doing has been looked at: on a hang before anything is ended, or because
// somebody asked. The texts lie in the attempt's folder (evidence.hpp).
struct EvidenceTaken {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::string reason;      // why it was taken
    std::string message;     // what was had and what was not, in words
    std::int64_t step = -1;  // the highest that a rank has reported
    // [{rank, node, pid, step, behind, state, wchan, frame, files: [{name, size}],
    // missing: [{what, why}]}], the lagging ones first; at most limits::kEvidenceRanks.
    Json ranks = Json::array();
};
// What was found of a node before the ranks met (preflight.hpp).
struct PreflightSeen {
    std::int32_t attempt = 0;
    std::int32_t slot = -1;
    std::string node;
    std::string severity;  // fail | warn | passed: no node has failed, says nothing of one
    std::string check{};
    std::string found{};
    std::string expected{};
};
// What the job's user should know, and what ends nothing; also in the job's `warnings`. Each text
// once, limits::kJobWarnings of them.
struct WarningGiven {
    std::int32_t attempt = 0;  // 0: of no attempt
    std::int32_t generation = 0;
    std::int32_t rank = -1;  // -1: of no single rank
    std::string node;        // "": of no single node
    std::string message;
};
// The ranks have been sent the signal at which they write a checkpoint; once for all who have asked
// meanwhile, of whom each with a key has an event.
struct CheckpointRequested {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::string by;      // a user's name, or "time limit"
    std::string signal;  // USR2
    // Of the time limit: the first rank of a node that was left out, for it would have died.
    std::int32_t rank = -1;
    std::string node{};
    std::string message{};
    std::string key{};  // Idempotency-Key, `by`'s; "" = none
};
// What ranks did for some seconds has been recorded, because somebody asked. The files lie in the
// attempt's folder (profile.hpp).
struct ProfileTaken {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int32_t number = 0;  // from 1 in each generation
    std::string by;
    std::int64_t seconds = 0;
    std::string message;  // what was had and what was not, in words
    // [{rank, node, files: [{name, size}], missing: [{what, why}]}], by rank.
    Json ranks = Json::array();
};
// The scheduler has stopped all processes of the allocation, or lets them go on.
struct Suspended {
    std::int32_t attempt = 0;
    bool over = false;  // they go on
    std::string message;
};
struct Finished {
    JobState state = JobState::failed;  // succeeded, failed or cancelled
    Cause cause;
    std::int64_t step = -1;  // last step reported, -1 = none
};

}  // namespace event

// In the order of EventKind: the index is the kind.
using EventData =
    std::variant<event::Submitted, event::AttemptCreated, event::AttemptPlaced, event::AgentClaimed,
                 event::GenerationStarted, event::RanksStarted, event::RankExited, event::FaultSeen,
                 event::CheckpointSaved, event::GenerationEnded, event::AttemptEnded,
                 event::CancelRequested, event::Finished, event::AttemptSubmitting,
                 event::AttemptSubmitted, event::Held, event::Released, event::AgentRefused,
                 event::DependencyFailed, event::RestartRequested, event::RanksReleased,
                 event::AnomalySeen, event::GpuXid, event::EvidenceTaken, event::PreflightSeen,
                 event::WarningGiven, event::CheckpointRequested, event::NodeReturned,
                 event::ProfileTaken, event::Suspended>;
static_assert(std::variant_size_v<EventData> == kEventKinds);

struct Event {
    Seq seq = 0;  // position in the daemon's log; 0 before it is appended
    JobId job;
    UnixMillis time = 0;  // the daemon's clock
    EventData data;
    EventKind kind() const { return static_cast<EventKind>(data.index()); }
};

// The `data` column of the log. decode_event_data fails with corrupt on what this version did not
// write.
std::string encode_event_data(const EventData& data);
Result<EventData> decode_event_data(EventKind kind, std::string_view text);

Json to_json(const Cause& cause);
// {seq, time, kind, attempt, generation, rank, node, data}: as the API shows it. No ticket hash.
Json to_json(const Event& event);

}  // namespace lockstep
