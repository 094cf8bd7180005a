// The environment and argv a rank is started with: written by the agent, shown by render, read by
// for any program of the user's. Pure; any thread.
#pragma once

#include "job/model/spec/spec.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Where the Python package and the hooks of it are, from the folder above the programs' own.
inline constexpr const char* kPythonFolder = "share/lockstep/python";
inline constexpr const char* kPythonHooksModule = "hooks/sitecustomize.py";

// What NCCL's Inspector plugin in a rank is told (job/agent/nccl): which it is, where it posts its
// measurements, and what says whose they are.
struct NcclInspector {
    std::string plugin;    // path; "" = none is used
    std::string endpoint;  // http://127.0.0.1:4242/v1/metrics
    std::string token;     // the rank's own
};

// One rank's place in a generation and on its node.
struct RankPlace {
    std::string job_id;
    std::int32_t attempt = 1;
    std::int32_t generation = 1;
    std::int32_t rank = 0;
    std::int32_t local_rank = 0;
    std::int32_t node_rank = 0;
    std::int32_t world_size = 1;
    std::int32_t local_world_size = 1;
    std::int32_t nodes = 1;
    std::string master_addr;
    std::int32_t master_port = 0;
    // By node rank; empty over limits::kEnvironmentHosts nodes unless needs_endpoints().
    std::vector<std::string> hosts;
    std::vector<std::string> endpoints;  // host:port by rank; only if needs_endpoints()
    std::string address;                 // this node's
    std::string socket_path;             // report socket of this rank
    std::string error_file;              // where a torch script's @record may write
    std::string checkpoint_directory;
    std::string train_config_file;  // native only
    std::string attempt_directory;  // what a container must see beside the checkpoints
    std::string agent_program;      // path of lockstep-agent, for `lockstep-agent report`
    std::string python_path;        // directory of the Python package, "" if not installed
    std::int32_t ras_port = 0;      // of the node, for NCCL's RAS; 0 = none is held
    NcclInspector inspector{};
};

// The full environment of a rank, from `inherited` (the agent's own, or what base_environment() and
// the job's setup made of it: spec_environment.hpp), the framework's contract and the spec's
// `environment` (which wins, except over LOCKSTEP_*). Scrubs what would mislead a rank: SLURM_*
// task variables that disagree, PMI*, PMIX*, OMPI_*, other launchers' variables, LOCKSTEP_*,
// proxies (no_proxy is extended instead). SLURM_JOB_NUM_NODES and SLURM_JOB_NODELIST, where it has
// them, become those of the world: spares and lost nodes are none of it. With launch node: what
// launchers of several processes take for their defaults, and nothing that says that this were a
// rank. With launch task `inherited` is of the task that srun has started: what Slurm and its PMI
// told it stays.
std::map<std::string, std::string> rank_environment(
    const JobSpec& spec, const RankPlace& place,
    const std::map<std::string, std::string>& inherited);

// argv after placeholder expansion; for native: {train_program}. With apptainer:
// apptainer exec --pwd … --bind … [--nv] <image> <argv>; what the rank needs of Lockstep is bound
// under its own path.
std::vector<std::string> rank_command(const JobSpec& spec, const RankPlace& place,
                                      const std::string& train_program);

}  // namespace lockstep
