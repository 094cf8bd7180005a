// What Slurm's programs print about the cluster: configuration, partitions, nodes.
// Pure; any thread.
#pragma once

#include "job/base/result.hpp"
#include "scheduler-integration/slurm/slurm_text.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// --- scontrol show config --------------------------------------------------------------------

inline constexpr std::array<std::string_view, 2> kShowConfigArguments{"show", "config"};

// Defaults are those of slurm.conf(5), for lines that a version does not print.
struct SlurmConfig {
    std::string cluster;
    std::vector<std::string> controllers;  // host names, the primary first
    SlurmVersion version;                  // 0.0.0: not printed
    std::int64_t min_job_age = 300;        // s after which a finished job is forgotten; 0 never
    std::int64_t max_array_size = 1001;
    std::int64_t max_job_count = 10'000;
    std::int64_t message_timeout = 10;              // s
    std::int64_t kill_wait = 30;                    // s between SIGTERM and SIGKILL
    std::int64_t max_script_bytes = 4LL << 20U;     // SchedulerParameters max_script_size
    std::string auth_type;                          // "auth/munge"
    std::optional<std::int64_t> credential_ttl;     // s, AuthInfo ttl
    std::optional<std::int64_t> credential_expire;  // s, AuthInfo cred_expire
    std::string accounting_storage;                 // "accounting_storage/slurmdbd"
    std::string select_type;
    std::string preempt_mode;
    std::string private_data;  // words by comma; empty for "none"
    bool job_requeue = true;   // JobRequeue: what a job without --(no-)requeue gets
    std::map<std::string, std::string> scheduler_parameters;  // by key; "" for those without =
    std::map<std::string, std::string> all;                   // every `Key = value` line, trimmed

    bool has_accounting() const;    // slurmdbd, so sacct answers
    bool hides_other_jobs() const;  // PrivateData=jobs: absent may mean hidden
    // How long a request that timed out may still be accepted: AuthInfo's ttl, else munge 300,
    // auth/slurm 60, auth/jwt 1800 (slurm.conf(5)).
    std::int64_t credential_lifetime() const;
};
Result<SlurmConfig> parse_show_config(const ProgramOutput& output);

// --- scontrol -a -o show partition ---------------------------------------------------------------

// -a: hidden ones too, and those that lockstepd's own groups may not use: its users' may.
inline constexpr std::array<std::string_view, 4> kShowPartitionArguments{"-a", "-o", "show",
                                                                         "partition"};

struct SlurmPartition {
    std::string name;
    std::string state;  // "UP", "DOWN", "DRAIN", "INACTIVE"
    bool is_default = false;
    bool hidden = false;
    bool root_only = false;
    std::optional<std::int64_t> max_time;      // s; absent: unlimited
    std::optional<std::int64_t> default_time;  // s; absent: none set
    std::optional<std::int64_t> max_nodes;     // per job; absent: unlimited
    std::int64_t min_nodes = 0;
    std::int64_t total_nodes = 0;
    std::int64_t total_cpus = 0;
    std::optional<std::int64_t> max_memory_mb_per_node;  // absent: unlimited
    std::string nodes;                                   // hostlist
    // Words by comma; empty: all.
    std::vector<std::string> allow_accounts, deny_accounts, allow_groups, allow_qos, deny_qos;
    std::string qos;           // partition QOS; empty: none
    std::string preempt_mode;  // "OFF", "REQUEUE", …
};
Result<std::vector<SlurmPartition>> parse_show_partitions(const ProgramOutput& output);

// --- sinfo -a -N ---------------------------------------------------------------------------------

// argv of sinfo, one row for each node and partition, fields between 0x1f.
std::vector<std::string> sinfo_node_arguments();

struct SlurmNode {
    std::string name;
    std::string state;  // "idle", "mixed", "allocated", "down", …, without its suffixes
    std::string flags;  // sinfo's suffixes: * no answer, ~ powered off, # powering up, $ reserved …
    std::string reason;  // why it is down or drained; empty: none
    std::int64_t cpus = 0;
    std::int64_t cpus_allocated = 0;
    std::int64_t cpus_idle = 0;
    std::int64_t memory_mb = 0;
    std::string gres;       // "gpu:h200:8(S:0-1)"; empty: none
    std::string gres_used;  // "gpu:h200:2(IDX:0-1)"
    std::vector<std::string> partitions;

    bool usable() const;        // answers and takes jobs (idle, mixed, allocated, completing …)
    std::int64_t gpus() const;  // of `gres`
    std::int64_t gpus_used() const;  // of `gres_used`
};
struct NodeTable {
    std::vector<SlurmNode> nodes;  // by name as printed first, partitions merged
    std::size_t malformed = 0;
};
Result<NodeTable> parse_sinfo_nodes(const ProgramOutput& output);

// The number of GPUs in a GRES text: "gpu:2,gpu:h200:8(S:0-1),mps:100" → 10.
std::int64_t gpus_of(std::string_view gres);
// … and of each type: {"h200": 8}. GPUs without a type are left out.
std::map<std::string, std::int64_t> gpu_types_of(std::string_view gres);

}  // namespace lockstep
