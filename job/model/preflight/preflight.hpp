// What is looked at on every node of an attempt before its ranks first meet, and what is made of
// it. An agent gathers NodeFacts (job/agent/preflight/preflight.hpp); the daemon compares them, has
// the nodes connect to each other, and names each failure by node, check, found and expected. Pure
// values and functions; any thread. The functions are O(nodes × log nodes).
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/preflight/gpu_test.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/state.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct AddressFact {
    std::string interface;  // "eth0"
    std::string address;    // IP in text
};

struct PathFact {
    std::string use;  // a PathUse word below
    std::string path;
    bool answered = true;    // false: it does not, and what looked at it was abandoned
    std::int32_t error = 0;  // errno of looking; 0 = it is there
    bool directory = true;
    bool enter = true;          // may be entered
    bool write = true;          // may be written to
    std::int64_t free_mb = -1;  // MiB; -1 = not known
};
inline constexpr std::string_view kPathWorking = "working_directory";
inline constexpr std::string_view kPathCheckpoint = "checkpoint_directory";
inline constexpr std::string_view kPathAttempt = "attempt_directory";
inline constexpr std::string_view kPathShm = "shm";
inline constexpr std::string_view kPathMount = "mount";  // any other that goes over a network

// A process that holds a GPU although no rank runs yet.
struct GpuProcessFact {
    std::int64_t pid = 0;
    std::string name;             // "" = it is gone, or of another user's namespace
    std::int64_t memory_mb = -1;  // MiB of the GPU's
};
// What a GPU has counted on one of its NVLinks since its driver was loaded.
struct NvlinkErrors {
    std::int32_t link = 0;
    std::int64_t crc = 0;
    std::int64_t replays = 0;
    std::int64_t recoveries = 0;
};
// One GPU as NVML tells of it (job/agent/gpu/gpu_health.hpp). -1: not known.
struct GpuHealth {
    std::int32_t gpu = -1;               // its number: that of /dev/nvidiaN
    std::string bus;                     // PCI address
    std::string model;                   // "NVIDIA H100 80GB HBM3"
    std::string lost;                    // why its driver does not reach it; "" = it does
    std::int64_t ecc = -1;               // uncorrected memory errors since the driver was loaded
    std::int32_t remap = -1;             // 1: rows of its memory wait to be remapped
    std::int32_t remap_failed = -1;      // 1: one could not be
    std::int32_t pages = -1;             // 1: pages of its memory wait to be retired
    std::int32_t recovery = -1;          // nvmlDeviceGpuRecoveryAction_t
    std::int32_t mig = -1;               // 1: divided into slices
    std::int64_t slowdown = -1;          // the kSlowdown… bits
    std::int32_t temperature = -1;       // °C
    std::int64_t memory_mb = -1;         // MiB in use
    std::vector<GpuProcessFact> others;  // that use it
    std::int32_t links = -1;             // active NVLinks
    std::vector<std::int32_t> links_down;
    std::vector<NvlinkErrors> link_errors;  // only links that have any
};
// Of nvmlClocksEventReasons: those that are no choice of somebody's.
inline constexpr std::int64_t kSlowdownHardware = 0x08;
inline constexpr std::int64_t kSlowdownSoftwareThermal = 0x20;
inline constexpr std::int64_t kSlowdownThermal = 0x40;
inline constexpr std::int64_t kSlowdownPowerBrake = 0x80;
inline constexpr std::int64_t kSlowdowns =
    kSlowdownHardware | kSlowdownSoftwareThermal | kSlowdownThermal | kSlowdownPowerBrake;

struct GpuFacts {
    bool driver = false;  // there is one; else nothing below is known
    std::int32_t count = 0;
    std::vector<std::string> faults;  // each makes the GPU unusable, in words
    std::vector<std::string> doubts;  // each is worth a look: recent XIDs
    std::vector<GpuHealth> health;    // of those that the job may use, if it asks for GPUs
    std::vector<std::string> unseen;  // what could not be looked at, and why
};

// An interface or a port that the ranks may use.
struct NicFact {
    std::string name;    // "eth0", "mlx5_0:1"
    std::string under;   // of which interface it is a part ("bond0"); "" = none
    bool rdma = false;   // of /sys/class/infiniband, else of /sys/class/net
    bool named = false;  // NCCL_IB_HCA takes it
    std::string state;   // "up", "down"; of RDMA "ACTIVE", "DOWN", "INIT"
};

// What an agent says of its node. "" and -1: not known, or not there.
struct NodeFacts {
    // driver cuda nccl torch container code lockstep → what was found; absent: nothing was.
    std::map<std::string, std::string> versions;
    std::int64_t open_files = -1;  // RLIMIT_NOFILE, hard
    std::int64_t memlock_kb = -1;  // RLIMIT_MEMLOCK, hard; INT64_MAX = unlimited
    std::int64_t somaxconn = -1;
    bool rdma = false;  // it has InfiniBand or RoCE devices
    std::string hostname;
    bool hostname_answered = true;                // false: the resolver did not, in time
    std::vector<std::string> hostname_addresses;  // what the name resolves to here
    // Where the other nodes may reach it; the first is the one that reached the daemon.
    std::vector<AddressFact> addresses;
    std::int32_t probe_port = 0;  // where it answers connections of its peers; 0 = it cannot
    std::string ports_problem;    // why it cannot hold the ports its ranks need; "" = it does
    std::int32_t ports_needed = 0;
    bool clock_known = false;
    std::int64_t clock_offset_ms = 0;  // its clock minus the daemon's
    std::int64_t clock_error_ms = 0;   // half of the round trip in which that was measured
    std::vector<PathFact> paths;
    GpuFacts gpu;
    std::vector<NicFact> nics;
    // The opt-in test with the native trainer; ms = -1: it was not run.
    std::int64_t cpu_test_ms = -1;
    std::string cpu_test_problem;  // "" = it ended well
    GpuTestFacts gpu_test;         // the opt-in test of its GPUs
    // Where its program of the test in pairs is to be met; 0: it takes no part in it.
    std::int32_t pair_port = 0;
    std::int32_t nccl_port = 0;  // the same of the test with NCCL
};

Json to_json(const NodeFacts& facts);
// invalid: not what to_json() makes, or over the limits. What it does not know it ignores.
Result<NodeFacts> parse_node_facts(const Json& json);
Json to_json(const std::vector<GpuHealth>& gpus);
Result<std::vector<GpuHealth>> parse_gpu_health(const Json& json);
Json to_json(const std::vector<NicFact>& nics);
Result<std::vector<NicFact>> parse_nics(const Json& json);

// Of a PreflightSeen event.
inline constexpr std::string_view kPreflightFail = "fail";
inline constexpr std::string_view kPreflightWarn = "warn";
inline constexpr std::string_view kPreflightPassed = "passed";

struct PreflightFinding {
    std::int32_t slot = -1;
    std::string node;
    std::string check;  // a word: clock, versions, reachable, …
    std::string found;  // a sentence that needs no other
    std::string expected;
    bool fails = false;  // else it is only warned of
    bool operator==(const PreflightFinding&) const = default;
};

struct PreflightNode {
    std::int32_t slot = 0;
    std::string node;  // its name
    NodeFacts facts;
};

// What one node shows by itself.
std::vector<PreflightFinding> check_node(const PreflightNode& node, const JobSpec& spec);
// What only a comparison shows: the minority of each version, of GPU counts, a slow CPU
// test, a slow GPU.
std::vector<PreflightFinding> compare_nodes(const std::vector<PreflightNode>& nodes,
                                            const JobSpec& spec);

// Which of `count` nodes the `index`-th connects to: its neighbours in the ring, and those 2, 4, 8
// … places on (⌈log2 count⌉ of them). Every node is connected to by as many.
std::vector<std::int32_t> probe_peers(std::int32_t index, std::int32_t count);

// A peer to connect to, as PROBE names it.
struct ProbePeer {
    std::int32_t slot = 0;
    std::int32_t port = 0;
    std::vector<std::string> addresses;
};
Json to_json(const std::vector<ProbePeer>& peers);
Result<std::vector<ProbePeer>> parse_probe_peers(const Json& json);

// ProbeResult::error where no answer came in time: of the peer, and of the network (ETIMEDOUT). The
// agent's words, on the wire; any other text is something that went wrong.
inline constexpr std::string_view kProbeNoAnswer = "no answer";
inline constexpr std::string_view kProbeTimedOut = "Connection timed out";

// One address of one peer, tried by node `from`.
struct ProbeResult {
    std::int32_t from = -1;  // not on the wire: who says it is known
    std::int32_t to = 0;
    std::string address;
    std::string error;  // "" = the peer answered

    // Nothing came in time: one of the two may have been busy.
    bool timed_out() const { return error == kProbeNoAnswer || error == kProbeTimedOut; }
};
Json to_json(const std::vector<ProbeResult>& results);
Result<std::vector<ProbeResult>> parse_probe_results(const Json& json, std::int32_t from);

struct Connections {
    std::vector<PreflightFinding> findings;
    // By slot the first of its addresses that everybody who was asked reached.
    std::map<std::int32_t, std::string> proven;
};
// `judged`: slots to be judged; the others only were their peers, and have passed before. As few
// nodes are blamed as explain what failed: the many that do not reach one bad node are not. One
// that only some that have passed do not meet, and as many peers do, is warned of: it may as well
// be they that were busy.
Connections judge_connections(const std::vector<PreflightNode>& nodes,
                              const std::set<std::int32_t>& judged,
                              const std::vector<ProbeResult>& results);

// How a failure is to be called as a cause: user_error if every node has it and the job's
// document names what is wrong, gpu_fault, else node_lost. A file server that does not answer is
// nobody's mistake.
CauseClass preflight_cause(const PreflightFinding& finding, bool on_every_node);
// "n3: its NCCL is 2.18.1; expected 2.19.3, as 2 of 3 nodes have"
std::string words_of(const PreflightFinding& finding);

}  // namespace lockstep
