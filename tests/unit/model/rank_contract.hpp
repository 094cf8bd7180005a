// Rank 5 of 2 nodes × 4 ranks, and every variable that it gets whatever its framework.
#pragma once

#include "job/model/launch/rank_env.hpp"

#include <map>
#include <string>

namespace lockstep::test {

using Variables = std::map<std::string, std::string>;

inline RankPlace place() {
    RankPlace out;
    out.job_id = "ls-01J0000000000000000000000A";
    out.attempt = 2;
    out.generation = 3;
    out.rank = 5;
    out.local_rank = 1;
    out.node_rank = 1;
    out.world_size = 8;
    out.local_world_size = 4;
    out.nodes = 2;
    out.master_addr = "10.0.0.1";
    out.master_port = 4242;
    out.hosts = {"n1", "n2"};
    out.address = "10.0.0.2";
    out.socket_path = "/tmp/s/r00001.sock";
    out.error_file = "/runs/rank-00005.error.json";
    out.checkpoint_directory = "/ckpt";
    out.train_config_file = "/runs/train-00001.json";
    out.agent_program = "/opt/bin/lockstep-agent";
    out.python_path = "/opt/share/python";
    out.attempt_directory = "/runs";
    return out;
}

inline JobSpec spec(Framework framework) {
    JobSpec out;
    out.name = "mnist";
    out.framework = framework;
    out.resources.nodes = 2;
    out.resources.ranks_per_node = 4;
    out.resources.cpus_per_rank = 6;
    return out;
}

// What every rank gets, whatever its framework.
inline Variables contract() {
    return {{"GROUP_RANK", "1"},
            {"GROUP_WORLD_SIZE", "2"},
            {"LOCAL_RANK", "1"},
            {"LOCAL_WORLD_SIZE", "4"},
            {"LOCKSTEP_ADDRESS", "10.0.0.2"},
            {"LOCKSTEP_AGENT", "/opt/bin/lockstep-agent"},
            {"LOCKSTEP_ATTEMPT", "2"},
            {"LOCKSTEP_CHECKPOINT_DIR", "/ckpt"},
            {"LOCKSTEP_CHECKPOINT_SIGNAL", "USR2"},
            {"LOCKSTEP_GENERATION", "3"},
            {"LOCKSTEP_HOSTS", "n1,n2"},
            {"LOCKSTEP_JOB_ID", "ls-01J0000000000000000000000A"},
            {"LOCKSTEP_JOB_NAME", "mnist"},
            {"LOCKSTEP_LOCAL_RANK", "1"},
            {"LOCKSTEP_LOCAL_WORLD_SIZE", "4"},
            {"LOCKSTEP_MASTER_PORT", "4242"},
            {"LOCKSTEP_NODES", "2"},
            {"LOCKSTEP_NODE_RANK", "1"},
            {"LOCKSTEP_RANK", "5"},
            {"LOCKSTEP_ROLE", "worker"},
            {"LOCKSTEP_ROLE_RANK", "5"},
            {"LOCKSTEP_ROLE_SIZE", "8"},
            {"LOCKSTEP_SOCKET", "/tmp/s/r00001.sock"},
            {"LOCKSTEP_WORLD_SIZE", "8"},
            {"MASTER_ADDR", "10.0.0.1"},
            {"MASTER_PORT", "4242"},
            {"NNODES", "2"},
            {"NODE_RANK", "1"},
            {"OMP_NUM_THREADS", "6"},
            {"PYTHONPATH", "/opt/share/python/hooks:/opt/share/python"},
            {"PYTHONUNBUFFERED", "1"},
            {"RANK", "5"},
            {"ROLE_NAME", "default"},
            {"ROLE_RANK", "5"},
            {"ROLE_WORLD_SIZE", "8"},
            {"TORCHELASTIC_ERROR_FILE", "/runs/rank-00005.error.json"},
            {"TORCHELASTIC_MAX_RESTARTS", "0"},
            {"TORCHELASTIC_RESTART_COUNT", "2"},
            {"TORCHELASTIC_RUN_ID", "ls-01J0000000000000000000000A"},
            {"TORCHELASTIC_USE_AGENT_STORE", "False"},
            {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
            {"WORLD_SIZE", "8"}};
}

// The same for those that meet at torch's store, which the agent serves.
inline Variables torch_contract() {
    Variables out = contract();
    out["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    return out;
}

// And what those get of torch's flight recorder that may use a GPU.
inline Variables with_flight_recorder(Variables out) {
    out["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = "/tmp/s/flight-";
    out["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = "/tmp/ls-01J0000000000000000000000A-nccl_trace_rank_";
    out["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1";
    out["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000";
    return out;
}

}  // namespace lockstep::test
