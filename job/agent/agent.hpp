// `lockstep-agent run`: one node of one attempt, from the claim to the exit code.
#pragma once

#include "job/agent/agent_session.hpp"
#include "job/agent/node/node.hpp"
#include "job/base/start_limits.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

struct AgentOptions {
    std::filesystem::path attempt_directory;
    std::int32_t node_rank = 0;
    std::string node_name;                       // "" = the host's name
    std::string allocation;                      // number of the Slurm job it runs in; "" = none
    std::filesystem::path preflight_root = "/";  // in front of /proc, /sys and /dev; for tests
    std::string train_program;                   // "" = lockstep-train beside this program
    std::string gpu_test_program;                // "" = lockstep-gpu-test beside this program
    std::string nccl_test_program;               // "" = lockstep-nccl-test beside this program
    std::string signed_document;                 // see NodeConfig
    std::int64_t signed_point = 0;
    std::optional<StartLimits> start_limits;  // for its ranks; none = its own
    int restarts = 0;  // how often it is started again when a signal ends it (keeper.hpp)
    Session::Timing session;
    RankGroup::Timing ranks;
};

// Blocks until the attempt is over for this node; the process's exit code (node.hpp). Owns the
// process: installs handlers for SIGTERM and SIGINT, ignores SIGPIPE. Main thread, once.
int run_agent(const AgentOptions& options);

}  // namespace lockstep
