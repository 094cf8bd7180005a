// size: the whole protocol in one place
// Messages agent ↔ daemon over WS /v1/agent: JSON text frames, one object each with a "type".
// Telemetry goes as binary frames (batch.hpp, gpu_batch.hpp). Pure values; any thread.
//
//   agent                                    daemon
//   HELLO  who I am, which node I claim   →
//                                          ← WELCOME  spec, what is acknowledged   (or FENCED)
//   JOIN   proven address, held port      →
//                                          ← WORLD    ranks and master of the generation
//   READY                                 →
//                                          ← START    everybody is ready: exec
//   STARTED pids                          →
//   BEAT 1 Hz · batches · KV · EXITED · FAULT · CHECKPOINT · EXAMINED · EVIDENCE · PROFILED · DONE
//                                          ← ACK · KEYS · SAVE · EXAMINE · STOP · FENCED
//   TABLE? in a large world               →
//                                          ← TABLE    who and where every node is
//                                          ← ABORT    this generation is over
//   EXITED of what ran, DONE, JOIN again  →
//                                          ← WORLD    of the next one
//
// ABORT is the question and JOIN the answer: an agent joins anew once none of its ranks lives, and
// says which generation it has left; asked again, it answers again.
//
// EXITED, FAULT, CHECKPOINT, GPU_XID, SAVE_ASKED, WARNED, DONE and BYE carry `event`, a number that
// counts from 1 per agent; batches carry `seq`. Both are kept by the agent until ACK names them and
// replayed after a reconnect; the daemon acknowledges what is durable and ignores what it has
// already. Of DONE and BYE nothing is stored: their ACK says only that they were heard. A daemon
// that is restarted before the loss of BYE's node is on disk finds that node silent. Every message
// of a generation carries its number; a stale one is answered FENCED.
//
// Either side says that it goes on purpose: BYE, the agent (told to end, nothing of its is left);
// DRAIN, the daemon (it is being stopped: come back).
#pragma once

#include "job/base/clock.hpp"
#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/wire/kv_op.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::wire {

inline constexpr std::int32_t kProtocol = 1;

// ---- agent → daemon -------------------------------------------------------------------------
struct Hello {
    std::int32_t protocol = kProtocol;
    // Index of this node in the allocation, 0..nodes-1 with the spares; which node of a generation
    // it is, WORLD says.
    std::int32_t node_rank = 0;
    std::string node;  // host name
    std::int64_t pid = 0;
    std::string incarnation;  // random per agent process: who claimed the node first
    std::string allocation;   // the scheduler's number of the job it runs in; "" = local scheduler
    std::string version;
    std::int32_t generation = 0;  // the one this agent is in; 0 = none yet
    bool ranks_running = false;   // it has live ranks of that generation
    UnixMillis time = 0;          // what its clock shows; 0 = it does not say
    bool preflight = false;       // it says CHECKED, if WELCOME asks for it
    bool profiles = false;        // it answers PROFILE
};
struct Join {
    std::string address;    // IP the other nodes reach this one at
    std::int32_t port = 0;  // bound and held by the agent for MASTER_PORT
    std::int32_t cores = 0;
    std::int32_t gpus = 0;
    std::int64_t memory_mb = 0;
    // Like `port` for an endpoint of each of its ranks, if needs_endpoints() (spec.hpp); else
    // empty.
    std::vector<std::int32_t> ports{};
    std::int32_t generation = 0;  // the newest one that is over on this node; 0 = none was here
    // Of all its interfaces, loopback left out: its ranks' connections come from one of them. Empty
    // = it does not say, or has more than limits::kNodeAddresses.
    std::vector<std::string> addresses{};
};
struct Ready {
    std::int32_t generation = 0;
};
struct StartedRank {
    std::int32_t rank = 0;
    std::int64_t pid = 0;
    bool warm = false;  // it was a standby (/recovery/warm_standby)
    // With launch node, of a rank whose launcher goes on: STARTED is said again when this changes.
    bool ended = false;
    bool end_known = false;      // and how:
    std::int64_t exit_code = 0;  // meant if there is no signal
    std::int64_t signal = 0;
};
struct Started {
    std::int32_t generation = 0;
    std::vector<StartedRank> ranks;
};
struct Exited {
    std::uint64_t event = 0;
    std::int32_t generation = 0;
    std::int32_t rank = 0;
    std::int32_t exit_code = -1;  // -1 when ended by a signal
    std::int32_t signal = 0;      // 0 when it exited
    bool stopped = false;         // the agent had been told to stop it before it ended
    bool oom = false;             // the kernel's out-of-memory killer did it
    UnixMillis time = 0;
    std::string log_tail;  // last limits::kLogTailBytes of its log; only of failures
    // With launch node: how the process has ended that starts the node's ranks; how this rank has,
    // nobody knows.
    bool launcher = false;
    // Of a failure, as the agent judges it (failure.hpp):
    std::string failure{};     // a word of FailureKind; "" = own
    UnixMillis failed_at = 0;  // the moment it failed, the daemon's clock; 0 = `time`
    std::string error_type{};  // of the exception; "" = none is known
    std::string error{};
    std::string traceback{};
    std::int64_t step = -1;  // the last that it has reported in this generation; -1 = none
};
struct Fault {
    std::uint64_t event = 0;
    std::int32_t generation = 0;
    std::int32_t rank = -1;   // -1: the node, not one rank
    std::string cause_class;  // a word of CauseClass (state.hpp)
    std::string message;
    UnixMillis time = 0;
};
struct CheckpointSaved {
    std::uint64_t event = 0;
    std::int32_t generation = 0;
    std::int32_t rank = 0;
    std::int64_t step = 0;
    std::string path;
    UnixMillis time = 0;
};
// Something the job's user should know, and what ends nothing. Each text once per generation.
struct Warned {
    std::uint64_t event = 0;
    std::int32_t generation = 0;
    std::int32_t rank = -1;  // -1: of no single rank
    std::string message;
};
// What NCCL's RAS shows, said after every look: a rank has not launched an operation of NCCL in
// which others wait for it. Of any rank of the job: one agent watches for all. Not acknowledged.
struct Desync {
    std::int32_t generation = 0;
    std::int32_t rank = -1;  // -1: nobody is waited for
    std::string message;
    std::int64_t waited_ms = 0;  // so far
};
struct Done {  // every rank of this node has ended (or none was started)
    std::uint64_t event = 0;
    std::int32_t generation = 0;
};
struct KeyRequest {  // a rank's key operation, see rank protocol in job/rank
    std::int32_t generation = 0;
    std::uint64_t id = 0;  // unique per agent process; a repeated id is the same request
    std::int32_t rank = 0;
    KvOp op = KvOp::unknown;
    std::vector<std::string> keys;
    std::string value;       // base 64, for set and cas
    std::int64_t delta = 0;  // for add
    std::int64_t timeout_ms = 30'000;
    bool replay = false;                // sent again after a reconnect: apply, no answer wanted
    std::string expected{};             // base 64, for cas; "" = the key must not exist
    bool once = false;                  // set and multi_set: the value may never be another one
    std::int64_t version = 0;           // of a replay: the answer's; a newer value of the key stays
    std::vector<std::string> values{};  // base 64, for multi_set: one per key
};
// What the ranks of a node are doing, as the kernel says: the answer to EXAMINE.
struct RankState {
    std::int32_t rank = 0;
    std::int64_t pid = 0;
    std::string state;  // proc(5)'s letter: R S D T t Z …
    std::string wchan;  // in what of the kernel it sleeps; "" = it does not, or that is secret
};
struct Examined {
    std::int32_t generation = 0;
    std::vector<RankState> ranks;
};
struct GpuXid {  // a critical error of a GPU of this node, as its driver reports it
    std::uint64_t event = 0;
    std::int32_t generation = 0;
    std::int32_t rank = -1;  // that used the GPU; -1: unknown
    std::int32_t gpu = 0;
    std::int64_t xid = 0;
    UnixMillis time = 0;
};
// The evidence of a rank that the agent has written (evidence.hpp says where), and what it could
// not have.
struct EvidenceFile {
    std::string name;
    std::int64_t size = 0;  // bytes
};
struct EvidenceGap {
    std::string what;  // "python", "native", …
    std::string why;
};
struct RankEvidence {
    std::int32_t rank = 0;
    std::string frame;  // where it is, in a line; "" = not known
    std::vector<EvidenceFile> files{};
    std::vector<EvidenceGap> missing{};
    std::string stack{};  // main_python_stack()'s (python_stack.hpp); "" = none
};
struct EvidenceSaved {  // follows EXAMINED once all is written or its time is over
    std::int32_t generation = 0;
    std::vector<RankEvidence> ranks;
};
struct Profiled {  // the answer to PROFILE, once all is written or its time is over
    std::int32_t generation = 0;
    std::int32_t number = 0;
    std::vector<RankEvidence> ranks;  // of files and gaps only
};
struct TableRequest {  // the table of the generation is not at hand
    std::int32_t generation = 0;
};
// The agent goes, and none of its ranks lives: the last thing it says. Its node is lost, without
// the patience for one that only fell silent.
struct Bye {
    std::uint64_t event = 0;
    std::string reason;
};
// What it found on its node (preflight.hpp), once per connection; the daemon asks for nothing
// before it is there, and WORLD waits for it.
struct Checked {
    Json facts;
};
struct Probed {  // the answer to PROBE
    std::int32_t round = 0;
    Json results;  // of ProbeResult
};
struct PairTested {  // the answer to PAIR_TEST: a PairOutcome
    std::int32_t round = 0;
    std::int64_t ms = -1;
    std::string problem;
    bool absent = false;
    Json nccl;  // of the test with NCCL a NcclTestFact
};
struct CanSave {  // the answer to ASK_SAVE
    std::int32_t generation = 0;
    std::int32_t round = 0;
    std::int32_t rank = -1;  // the first that does not catch the signal; -1 = each of them does
    std::string problem;     // what it does not do, in words
};
// The scheduler has said that the time limit is near: the ranks were sent the signal.
struct SaveAsked {
    std::uint64_t event = 0;
    std::int32_t generation = 0;
    std::int32_t rank = -1;  // the first that was left out; -1 = none
    std::string problem;     // why
    UnixMillis time = 0;
};
struct Beat {
    UnixMillis time = 0;
    std::int32_t generation = 0;
    std::uint64_t dropped_rows = 0;  // reports lost so far on this node, for any reason
    // The agent's clock, microseconds since the Unix epoch, if CLOCK is to answer; 0 = it is not.
    std::int64_t asks_us = 0;
    // The agent's clock minus the daemon's, and how far that may be wrong, both in microseconds.
    std::int64_t offset_us = 0;
    std::int64_t offset_error_us = -1;  // -1 = not known yet
};

// ---- daemon → agent -------------------------------------------------------------------------
struct Welcome {
    std::string daemon;  // random per start of lockstepd: a change means keys are gone
    UnixMillis time = 0;
    std::string job_id;
    std::string job_name;
    std::int32_t attempt = 0;
    std::int32_t generation = 0;    // current one of the attempt; 0 = gathering
    std::uint64_t acked_batch = 0;  // the newest one of this node that is durable; 0 = none
    std::string checkpoint_directory;
    Json spec;               // canonical JSON of the job's spec
    bool preflight = false;  // CHECKED is wanted
    // The request's body, if its user has signed it: the agent takes the specification from there
    // and from nowhere else (signed_statement.hpp).
    std::string document{};
    // The job's secrets that its user has, and their values: nowhere else.
    std::vector<std::string> secret_names{};
    std::vector<std::string> secret_values{};
};
struct World {
    std::int32_t generation = 0;
    std::int32_t world_size = 0;
    std::int32_t node_rank = 0;
    std::int32_t first_rank = 0;
    std::int32_t local_ranks = 0;
    std::string master_address;
    std::int32_t master_port = 0;
    // These three are empty in a world of more than limits::kWorldHosts nodes: TABLE has them. An
    // agent of before that takes such a world for one of no nodes; the two are installed together.
    std::vector<std::string> hosts;  // by node rank
    std::int64_t resume_step = -1;   // newest complete checkpoint, -1 = none
    // Only if needs_endpoints() (spec.hpp):
    std::vector<std::string> addresses{};  // by node rank
    std::vector<std::int32_t> ports{};     // by rank
    std::int32_t nodes = 0;
    std::string table{};  // digest of the table that belongs to it; "" = all of it is here
    // Of this node, where its peers have reached it; "" = as it said in JOIN.
    std::string address{};
    // For the node of rank 0 only, which may serve what the ranks meet at (store_guard.hpp): all
    // addresses of the world's nodes; empty = not known of all of them.
    std::vector<std::string> admitted{};
    // The RDMA ports, "mlx5_0:1", of this node that NCCL is to take; empty = what it finds.
    std::vector<std::string> rdma_ports{};
};
// What is the same for every node of a large world and needed by few: sent on request.
// An agent keeps it; the next generation's is the same if its digest is.
struct Table {
    std::string digest;
    std::vector<std::string> hosts{};      // by node rank
    std::vector<std::string> addresses{};  // as World's
    std::vector<std::int32_t> ports{};
};
struct Drain {  // lockstepd is being stopped; agents and ranks go on and find the next one
    std::string reason;
};
struct Start {
    std::int32_t generation = 0;
};
struct Abort {  // stop the ranks of this generation: TERM, grace, KILL
    std::int32_t generation = 0;
    std::string reason;
    std::int64_t grace_ms = 10'000;
};
struct Save {  // the ranks of this generation are to write a checkpoint now
    std::int32_t generation = 0;
};
struct Clock {                   // the answer to a BEAT that asks, at once
    std::int64_t asked_us = 0;   // of the BEAT
    std::int64_t daemon_us = 0;  // the daemon's clock when it was read
};
// Which of the ranks would die of the signal for a checkpoint? CAN_SAVE answers; nothing is sent to
// the ranks.
struct AskSave {
    std::int32_t generation = 0;
    std::int32_t round = 0;
};
struct Examine {  // look what the ranks of this generation are doing, before they are ended
    std::int32_t generation = 0;
    std::string reason;
    std::vector<std::int32_t> first{};  // local ranks to begin with: those that are behind
    // They go on: only what costs them nothing (/proc, Python's own stacks), no debugger.
    bool gentle = false;
};
struct Profile {  // record for some seconds what these ranks do; they go on
    std::int32_t generation = 0;
    std::int32_t number = 0;  // of the profile, from 1 in each generation
    std::int64_t seconds = 0;
    std::vector<std::int32_t> ranks{};  // local ones
};
struct Probe {  // connect to these nodes and say which of their addresses answer
    std::int32_t round = 0;
    Json peers;  // of ProbePeer
};
struct PairTest {  // test this node together with another one
    std::int32_t round = 0;
    Json task;  // a PairTask
};
struct Stop {  // the attempt is over: stop what runs, say DONE, exit
    std::string reason;
    std::int64_t grace_ms = 10'000;
    // What it has come to, a final JobState's word: the agent's exit code tells the scheduler.
    // "" = an older lockstepd, which does not say.
    std::string outcome{};
};
struct Ack {
    std::uint64_t batch = 0;  // every batch up to this seq is durable
    std::uint64_t event = 0;
};
struct KeyReply {
    std::uint64_t id = 0;
    bool ok = false;
    bool has_value = false;
    std::string value;                // base 64 (get)
    std::vector<std::string> values;  // base 64 (multi_get)
    std::int64_t number = 0;          // add; delete: 1 = there was such a key
    std::string error;                // an Errc word when not ok
    std::string message;
    bool swapped = false;      // cas; value is the one that stands now
    std::string once{};        // get, multi_get: '1' per value that can't change any more, else '0'
    std::int64_t version = 0;  // set, multi_set, add, cas: grows with every change of any key
};
struct Fenced {  // this agent or generation was superseded: stop and exit
    std::int32_t generation = 0;
    std::string message;
};

using AgentMessage =
    std::variant<Hello, Join, Ready, Started, Exited, Fault, CheckpointSaved, Done, KeyRequest,
                 Beat, Examined, GpuXid, EvidenceSaved, TableRequest, Bye, Checked, Probed,
                 PairTested, CanSave, SaveAsked, Warned, Desync, Profiled>;
using DaemonMessage = std::variant<Welcome, World, Start, Abort, Stop, Ack, KeyReply, Fenced, Save,
                                   Examine, Table, Drain, Probe, PairTest, AskSave, Clock, Profile>;

std::string encode(const AgentMessage& message);
std::string encode(const DaemonMessage& message);
// The same, with the spec as the text of its canonical JSON: of a large job thousands get it.
std::string encode_welcome(const Welcome& message, std::string_view spec);
// invalid: not JSON within the limits, an unknown type, a missing or ill-typed field.
// Fields this version does not know are ignored: a newer peer may send them.
Result<AgentMessage> decode_agent(std::string_view text);
Result<DaemonMessage> decode_daemon(std::string_view text);

// ---- the attempt's file -----------------------------------------------------------------------
// <attempt directory>/agent.json, mode 0600, written by lockstepd, rewritten when its address
// changes; agents read it again before every connect.
struct AttemptFile {
    std::string url;     // http[s]://host:port of the agents' listener
    std::string ticket;  // bearer of this attempt; its hash is what the daemon stores
    std::string job_id;
    std::int32_t attempt = 0;
    std::int32_t nodes = 1;
    std::string fingerprint{};  // "sha256:…" of the certificate the listener shows; "" = no TLS
    bool shared = false;        // the agents run as another Unix user than the daemon
    std::string socket{};  // path of the daemon's Unix socket, dialled instead of `url`; "" = none
};
inline constexpr std::string_view kAttemptFileName = "agent.json";
std::string encode_attempt_file(const AttemptFile& file);
Result<AttemptFile> decode_attempt_file(std::string_view text);

// <attempt directory>/node-00000.claim: created O_EXCL and flock()ed by the agent for as long as it
// lives; holds ClaimFile. Its existence says that this node's agent was started once; the lock
// says that it lives. A second agent for the node exits at once: no rank is started twice.
// In a scheduler's allocation the file's name carries its number: a second copy of the attempt is
// told apart by the daemon, to which the first agent that calls in is the attempt's.
std::string claim_file_name(std::int32_t node_rank, const std::string& allocation = "");
struct ClaimFile {
    std::int64_t pid = 0;
    std::string incarnation;
    std::string node;
    std::string allocation{};  // see Hello
};
std::string encode_claim_file(const ClaimFile& file);
Result<ClaimFile> decode_claim_file(std::string_view text);

// <attempt directory>/node-00000.result.json: written atomically once all ranks of the node ended,
// so that the outcome survives agent and daemon. Holds the EXITED and FAULT messages.
std::string result_file_name(std::int32_t node_rank);
struct ResultFile {
    std::string incarnation;
    std::int32_t generation = 0;
    std::vector<Exited> exits;
    std::vector<Fault> faults;
};
std::string encode_result_file(const ResultFile& file);
Result<ResultFile> decode_result_file(std::string_view text);

// <attempt directory>/node-00000.gave-up.json: why an agent left although nothing was settled: the
// daemon refused it, it refused the daemon's certificate, or it never reached it. The daemon cannot
// know this otherwise, so the agent's last words go into the job's events.
std::string gave_up_file_name(std::int32_t node_rank);
struct GaveUpFile {
    std::string incarnation;
    std::string node;
    std::string reason;
};
std::string encode_gave_up_file(const GaveUpFile& file);
Result<GaveUpFile> decode_gave_up_file(std::string_view text);

// <attempt directory>/rank-00000.log: stdout and stderr of a rank, in order.
std::string rank_log_name(std::int32_t rank);

}  // namespace lockstep::wire
