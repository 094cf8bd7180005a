// What a node is told when its agent starts. Value.
#pragma once

#include "job/agent/ranks/rank_group.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

struct NodeConfig {
    std::filesystem::path attempt_directory;
    std::int32_t node_rank = 0;
    std::int32_t nodes = 1;
    std::string name;         // of the node
    std::string incarnation;  // random per process
    // SHA-256 of what the job's user has signed and which job of it this is: the specification is
    // that one, whatever the daemon says (signed_statement.hpp). "" = the daemon's word counts.
    std::string signed_document{};
    std::int64_t signed_point = 0;
    std::string allocation;                      // see wire::Hello
    std::string agent_program;                   // this program, for ranks' shims and their use
    std::string train_program;                   // lockstep-train
    std::string gpu_test_program{};              // lockstep-gpu-test
    std::string nccl_test_program{};             // lockstep-nccl-test
    std::string ticket;                          // of the attempt
    std::filesystem::path preflight_root = "/";  // see Preflight::Options
    std::string python_path;                     // of the Python package, "" if it is not installed
    // Where the package's hooks were looked for in vain, "" if they are there.
    std::string missing_hooks;
    std::filesystem::path own_libraries{};         // where an Inspector plugin may lie
    std::map<std::string, std::string> inherited;  // the agent's own environment
    RankGroup::Timing timing;
    std::chrono::milliseconds settle{5'000};  // for the last acknowledgements, before exit
    std::chrono::milliseconds tick{250};      // between looks at processes and printed losses
    std::chrono::milliseconds gpus{1'000};    // between looks at the GPUs
};

}  // namespace lockstep
