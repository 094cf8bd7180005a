// What a user asks for: the document of POST /v1/jobs (design §4). parse_spec() knows every field
// of the contract; one that this version cannot honour is refused by name, never ignored.
// Plain values and pure functions; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/train_config.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Framework : std::uint8_t {
    native,
    pytorch,
    lightning,
    keras,
    tensorflow,
    paddle,
    jax,
    horovod,
    deepspeed,
    accelerate,
    mpi,
    command,
};
std::string_view to_string(Framework framework);

struct Resources {
    std::int32_t nodes = 1;
    std::int32_t ranks_per_node = 1;
    std::int32_t gpus_per_node = 0;
    std::int32_t cpus_per_rank = 1;
    std::int64_t memory_mb_per_node = 0;  // 0 = not stated, nothing reserved
    std::int64_t time_limit_seconds = 0;  // 0 = none; Slurm: what the partition gives by default
    std::int32_t world_size() const { return nodes * ranks_per_node; }
};

struct CaptureSpec {
    // auto | none | paddle | keras | huggingface | lightning | pytorch (capture.hpp)
    std::string preset = "auto";
    std::string loss;  // RE2 pattern with named groups loss, and optionally step, epoch
};

struct CheckpointSpec {
    std::string directory;        // "" = <runs-dir>/<job>/checkpoints
    std::string signal = "USR2";  // what the ranks get: USR2 | USR1 | TERM | INT | HUP
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

enum class Submission : std::uint8_t {
    automatic,
    manual,  // everything is prepared; the job is held until a person hands in the script
};

struct JobSpec {
    std::string name;
    Framework framework = Framework::native;
    std::optional<TrainConfig> train;  // native only
    std::vector<std::string> command;  // argv; empty for native
    Resources resources;
    SlurmSpec slurm;
    Submission submission = Submission::automatic;
    std::map<std::string, std::string> environment;
    std::string working_directory;  // "" = the attempt directory
    ContainerSpec container;
    CheckpointSpec checkpoint;
    CaptureSpec capture;
    // Jobs that must have succeeded first; if one of them does not, this one fails without a start.
    std::vector<std::string> after;
    std::map<std::string, std::string> labels;
};

// invalid, with one FieldError per mistake.
Result<JobSpec> parse_spec(const Json& json);
// Canonical: every field that matters, defaults filled in, keys in a fixed order. parse_spec() of
// it gives the same spec.
Json to_json(const JobSpec& spec);

// Replaces {rank} {local_rank} {node_rank} {world_size} {master_addr} {master_port} in one
// argument. Other braces stay as they are.
struct Placeholders {
    std::int32_t rank = 0;
    std::int32_t local_rank = 0;
    std::int32_t node_rank = 0;
    std::int32_t world_size = 1;
    std::string master_addr;
    std::int32_t master_port = 0;
};
std::string expand_placeholders(std::string_view text, const Placeholders& values);

}  // namespace lockstep
