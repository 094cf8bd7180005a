// What a user asks for: the document of POST /v1/jobs (JobSpec of /openapi.json). parse_spec()
// knows every field of the contract; one that this version cannot honour is refused by name, never
// ignored. Plain values and pure functions; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/framework_list.hpp"
#include "job/model/spec/train_config.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The one variable of Lockstep's own that a job may set: "off" leaves the hooks out of its Python
// (job/rank/python/hooks).
inline constexpr std::string_view kPythonHooks = "LOCKSTEP_PYTHON_HOOKS";

// Which CPUs the ranks of a node may run on; job/agent/ranks/binding.hpp.
enum class Binding : std::uint8_t { none, numa, cores };
std::string_view to_string(Binding binding);

struct Resources {
    std::int32_t nodes = 1;
    // More nodes in the allocation than the ranks need: one takes the place of a node that is lost.
    std::int32_t spares = 0;
    // As few nodes the ranks may go on with when others are lost; 0: all of `nodes` are needed.
    std::int32_t min_nodes = 0;
    std::int32_t ranks_per_node = 1;
    std::int32_t gpus_per_node = 0;
    std::string gpu_type;  // the scheduler's name of their type: "h100"; "" = any
    // Neighbours among the ranks of a node that compute on one GPU: to try out a script of many
    // ranks where there are few GPUs. NCCL can do it from 2.30 on.
    std::int32_t ranks_per_gpu = 1;
    std::int32_t cpus_per_rank = 1;
    std::int64_t memory_mb_per_node = 0;  // 0 = not stated, nothing reserved
    std::int64_t time_limit_seconds = 0;  // 0 = none; Slurm: what the partition gives by default
    Binding binding = Binding::none;
    std::int32_t world_size() const { return nodes * ranks_per_node; }
    std::int32_t allocated_nodes() const { return nodes + spares; }
    std::int32_t least_nodes() const { return min_nodes > 0 ? min_nodes : nodes; }
    // Its generations may have fewer nodes than `nodes`.
    bool is_elastic() const { return least_nodes() < nodes; }
};

struct CaptureSpec {
    // auto | none | paddle | keras | huggingface | lightning | pytorch (capture.hpp)
    std::string preset = "auto";
    std::string loss;  // RE2 pattern with named groups loss, and optionally step, epoch
};

struct CheckpointSpec {
    std::string directory;        // "" = <runs-dir>/<job>/checkpoints
    std::string signal = "USR2";  // what the ranks get: USR2 | USR1 | TERM | INT | HUP
    // The job names it, so its ranks get it whether they catch it or not. Otherwise only ranks do
    // that catch it: it would end the others.
    bool signal_named = false;
    // Seconds before the time limit at which they get it, Slurm only; 0 = never. Slurm may send it
    // up to 60 s earlier (sbatch(1), --signal).
    std::int32_t seconds_before_timeout = 0;
};

// Where and how Slurm places the job: sbatch's options of the same names. Every text has passed an
// allow-list of characters (spec_slurm.cpp), so it may stand in an #SBATCH line. "" = not stated.
struct SlurmSpec {
    std::string partition;  // one, or several with commas: the one that starts first
    std::string account;
    std::string qos;
    std::string constraint;
    std::string reservation;
    std::string nodelist;  // a host list: n[1-3],m7
    std::string exclude;   // a host list
    bool exclusive = false;
    // Other long options of sbatch, from a list in spec_slurm.cpp: {"switches": "1"}. An option
    // without a value has "".
    std::map<std::string, std::string> directives;
    bool operator==(const SlurmSpec&) const = default;
    bool empty() const { return *this == SlurmSpec{}; }
};

enum class ContainerRuntime : std::uint8_t {
    none,
    pyxis,      // NVIDIA's plugin of Slurm: the agent runs in the container, and its ranks with it
    apptainer,  // on every scheduler: the agent starts each rank with `apptainer exec`
};
std::string_view to_string(ContainerRuntime runtime);

// In what the ranks run. Every text has passed an allow-list of characters (spec_container.cpp).
struct ContainerSpec {
    ContainerRuntime runtime = ContainerRuntime::none;
    std::string image;                // as the runtime takes it
    std::vector<std::string> mounts;  // "/source:/destination[:ro|:rw]"
    bool operator==(const ContainerSpec&) const = default;
};

// Who starts the processes of a job.
enum class Launch : std::uint8_t {
    rank,  // the agent starts every rank
    node,  // one process per node, which starts the node's ranks itself: torchrun, mp.spawn
    task,  // srun starts every rank and gives it its PMI: MPI
};
std::string_view to_string(Launch launch);

// Some of a job's ranks, one after the other: the first role has the first ranks.
struct RoleSpec {
    std::string name;  // of the framework's own; with command any
    std::int32_t count = 1;
    std::int32_t gpus = -1;  // that each of its ranks sees; -1: what its framework expects
    bool ends_job = true;    // the job is over once every rank of such a role has ended well
    bool operator==(const RoleSpec&) const = default;
};

// Where one rank stands among the roles.
struct RankRole {
    std::string name = "worker";
    std::int32_t index = 0;  // within the role
    std::int32_t count = 1;
    std::int32_t gpus = -1;
    bool ends_job = true;
};

// What may be recovered from.
enum class RecoveryTrigger : std::uint8_t {
    rank_failure,  // a rank exited with a code other than 0 or was ended by a signal
    node_failure,  // a node, its agent or its GPU was lost
    hang,          // no rank moves any more
    preemption,    // the scheduler took the nodes back
    time_limit,    // the attempt's time was over
};
inline constexpr std::size_t kRecoveryTriggers = 5;
std::string_view to_string(RecoveryTrigger trigger);

// What follows a loss that is NaN or infinite.
enum class NonfiniteLoss : std::uint8_t {
    warn,     // an anomaly event
    stop,     // the job has failed
    restart,  // another generation from the newest checkpoint, counted as a restart
};

inline constexpr std::int32_t kGrowAfterSeconds = 300;

// Off unless the spec has /recovery: a script that keeps no checkpoints must not run twice by
// surprise. {} is what stands here.
struct RecoverySpec {
    bool wanted = false;
    std::int32_t max_restarts = 3;  // generations after the first, over all attempts
    std::int32_t max_attempts = 2;  // allocations
    std::array<bool, kRecoveryTriggers> on{true, true, true, true, true};  // by RecoveryTrigger
    NonfiniteLoss on_nonfinite_loss = NonfiniteLoss::warn;
    bool exclude_failed_nodes = true;  // from the next attempts
    // With min_nodes: how long a checkpoint is waited for, at most, before the ranks are started
    // again on more nodes. Nothing: kGrowAfterSeconds.
    std::optional<std::int32_t> grow_after_seconds;
    // Modules that a standby of each rank imports ahead of a restart; empty: there are none.
    std::vector<std::string> warm_standby;
    bool has(RecoveryTrigger trigger) const {
        return wanted && on[static_cast<std::size_t>(trigger)];
    }
};

struct WatchSpec {
    // No rank has made a step for so long: it hangs, which is told, and ended only if recovery is
    // on for it. 0: max(60 s, 10 × the 99th percentile of the ranks' step times, 3 × the time
    // between two reports).
    std::int32_t hang_seconds = 0;
    double straggler_score = 0.75;  // a rank below it is a straggler (job_stats.hpp)
};

enum class PreflightMode : std::uint8_t {
    on,    // before the ranks of an attempt meet (preflight.hpp)
    only,  // nothing but that: the job has succeeded once no node has failed
    off,
};

struct PreflightSpec {
    PreflightMode mode = PreflightMode::on;
    // A node whose NCCL, torch, container or commit is not that of most nodes fails; false: it is
    // only named.
    bool require_same_versions = true;
    // Trains for a moment on the CPUs of every node by itself and compares the times; takes
    // seconds.
    bool cpu_test = false;
    // Computes on every GPU of every node and moves its memory, and compares GPUs of one model.
    // Without GPUs (resources.gpus_per_node) there is nothing to test: refused at admission, not
    // when it is read, because documents of 0.1.0 that are stored call cpu_test so.
    bool gpu_test = false;
    // Tests the nodes in pairs, in two rounds, and leaves out one that is slow or fails in both.
    bool pair_test = false;
    // Sums values with NCCL over the GPUs of two nodes at a time, in two rounds, and leaves out a
    // node that fails or is slow in both. Refused at admission without GPUs.
    bool nccl_test = false;
};

enum class Submission : std::uint8_t {
    automatic,
    manual,  // everything is prepared; the job is held until a person hands in the script
};

struct JobSpec {
    std::string name;
    std::optional<TrainConfig> train;  // native only
    std::vector<std::string> command;  // argv; empty for native
    std::vector<RoleSpec> roles;       // empty: every rank is a worker
    Resources resources;
    SlurmSpec slurm;
    std::map<std::string, std::string> environment;           // wins over everything but LOCKSTEP_*
    std::map<std::string, std::string> recorded_environment;  // the submitting client's caller's
    // Shell text that each agent runs in a login shell before its ranks; what it exports is theirs.
    std::string setup;
    std::string working_directory;  // "" = the attempt directory
    ContainerSpec container;
    CheckpointSpec checkpoint;
    RecoverySpec recovery;
    WatchSpec watch;
    Framework framework = Framework::native;
    Launch launch = Launch::rank;
    Submission submission = Submission::automatic;
    // The ranks' environment begins with recorded_environment.
    bool inherit_environment = false;
    PreflightSpec preflight;
    CaptureSpec capture;
    // Jobs that must have succeeded first; if one of them does not, this one fails without a start.
    std::vector<std::string> after;
    std::map<std::string, std::string> labels;
    // Variables of every rank that lockstepd has the values of: its user's secrets
    // (spec_secrets.hpp).
    std::vector<std::string> secrets;
    std::vector<std::string> notify;  // targets (notify.hpp), as they were given

    // The ranks, by any starter: the agent, srun, or a launcher that the agent starts (launch
    // node), whose processes say which rank they are.
    // Of an elastic job the largest world; the generation has its own (job.hpp).
    std::int32_t world_size() const { return resources.world_size(); }
    std::int32_t ranks_per_node() const { return resources.ranks_per_node; }
    RankRole role_of(std::int32_t rank) const;
};

// invalid, with one FieldError per mistake.
Result<JobSpec> parse_spec(const Json& json);
// Canonical: every field that matters, keys in a fixed order. Resources that every job has are
// there with their defaults filled in, and so are environment, capture.preset and labels; any other
// member is left out where it has its default. parse_spec() of it gives the same spec.
Json to_json(const JobSpec& spec);

// Whether every rank is told the address of every other: the agents hold a port for each then.
bool needs_endpoints(const JobSpec& spec);
// What the ranks of framework keras compute with: KERAS_BACKEND of the job, else tensorflow.
std::string_view keras_backend(const JobSpec& spec);
// tensorflow, or keras on it.
bool runs_tensorflow(const JobSpec& spec);
// "keras on jax": its framework in messages.
std::string framework_words(const JobSpec& spec);

// Replaces {rank} {local_rank} {node_rank} {num_nodes} {world_size} {master_addr} {master_port} in
// one argument. Other braces stay as they are.
struct Placeholders {
    std::int32_t rank = 0;
    std::int32_t local_rank = 0;
    std::int32_t node_rank = 0;
    std::int32_t num_nodes = 1;  // of the generation
    std::int32_t world_size = 1;
    std::string master_addr;
    std::int32_t master_port = 0;
};
std::string expand_placeholders(std::string_view text, const Placeholders& values);

}  // namespace lockstep
