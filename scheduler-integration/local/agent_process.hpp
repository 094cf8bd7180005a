// Starting lockstep-agent processes that outlive the daemon, and recognising those that an earlier
// daemon started: what the claim and result files of an attempt say (wire.hpp). Blocking, short;
// control thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/wire/wire.hpp"

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct AgentCommand {
    std::string program;
    std::filesystem::path attempt_directory;
    std::int32_t node_rank = 0;
    std::string node_name;
    std::string gpus;                // its CUDA_VISIBLE_DEVICES; "" = it sees none
    bool gpus_given = false;         // false: there are none to give, the variable stays as it is
    std::vector<std::string> extra;  // further arguments of `lockstep-agent run`
};
struct AgentProcess {
    pid_t pid = -1;
    UniqueFd pidfd;  // readable once it has ended
};

// In a session of its own, stdin from /dev/null, stdout and stderr appended to agent-00000.log of
// the attempt directory; the environment is this process's without LOCKSTEP_*, SLURM_* and PMI*,
// with CUDA_VISIBLE_DEVICES where GPUs are handed out.
Result<AgentProcess> start_agent(const AgentCommand& command);

// What is known of a node's agent from its files.
struct ClaimState {
    enum class Kind {
        unclaimed,  // no agent has ever had the node
        alive,      // the claim is locked
        ended,      // claimed and not locked
    };
    Kind kind = Kind::unclaimed;
    wire::ClaimFile claim;    // unless unclaimed; pid 0 if it does not read back
    bool has_result = false;  // ended only: it left its result
};
ClaimState read_claim(const std::filesystem::path& attempt_directory, std::int32_t node_rank);

// A handle of the living agent of a claim; nothing if it has ended (or its process id means
// nothing here). The lock is looked at again once the handle is open, so the process is the agent
// and not another one that got its number.
std::optional<AgentProcess> adopt_agent(const std::filesystem::path& attempt_directory,
                                        std::int32_t node_rank);

// kill(2) by pidfd: never hits another process.
void signal_agent(int pidfd, int number);

}  // namespace lockstep
