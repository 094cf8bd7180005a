// Who this process is in its job, read once from the environment that the agent sets.
// A plain value: any thread, no lifetime.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

struct RankContext {
    std::int32_t rank = 0;
    std::int32_t world_size = 1;
    std::int32_t local_rank = 0;
    std::int32_t local_world_size = 1;
    std::int32_t node_rank = 0;
    std::string job_id;
    std::int32_t attempt = 1;
    std::int32_t generation = 1;
    std::string socket;                // path of the agent's socket; empty = no agent, stand-alone
    std::string train_config;          // path of the JSON file that holds `train`
    std::string checkpoint_directory;  // shared by all ranks and attempts; empty = none
    std::string address;               // of this node, proven by the agent; empty = loopback
    std::string role;                  // of this rank in its job: worker, ps, …
    // Without an agent, of several ranks: where they meet.
    std::string master_address;
    std::int32_t master_port = 0;
    bool store_elsewhere = false;  // torchrun's agent keeps the store there, not rank 0

    bool managed() const { return !socket.empty(); }
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// The process's own environment. Not while another thread calls setenv().
std::optional<std::string> process_environment(const std::string& name);

// Whether torchrun, or a launcher like it, started this process: RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT are all there.
bool is_launched(const Environment& environment);

// Reads RANK, WORLD_SIZE, …, LOCKSTEP_*. Without LOCKSTEP_SOCKET it is a rank as torchrun starts
// one if is_launched(), and one rank alone otherwise.
// invalid: a number that is none, or a rank outside its world.
Result<RankContext> read_rank_context(const Environment& environment = process_environment);

}  // namespace lockstep
