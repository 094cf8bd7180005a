// NCCL's own account of a job, as its RAS gives it in JSON (2.28.7 and later): which ranks each
// communicator has and how many operations of each kind each of them has launched. Written by
// src/ras/client_support.cc (rasDumpCommsToJSON) from NCCL's counters (ncclComm::seqNumber):
// counted on the host when a collective is launched; neither what is sent between two ranks
// (ncclSend, ncclRecv) nor what a CUDA graph replays is counted. Pure; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct RasRank {
    std::int32_t rank = 0;  // in the communicator
    std::string host{};     // its address; "unknown" = RAS has lost it
    std::int64_t pid = -1;
    // Initialised, and nobody finalises, destroys or aborts it, and no error is known.
    bool in_use = true;
    std::map<std::string, std::int64_t> launched{};  // by operation: "AllReduce", …

    std::int64_t total() const;
};
// A rank that RAS has no account of.
struct RasMissing {
    std::int32_t rank = 0;
    std::string host{};
    std::int64_t pid = -1;
    bool unresponsive = false;  // otherwise its process answers, and is not (any more) a member
    bool dead = false;          // unresponsive for a minute: NCCL asks it no more
};
struct RasCommunicator {
    std::string name{};  // its hash, as NCCL's log has it
    std::string key{};   // with the second hash: unique in the job
    std::int32_t size = 0;
    std::vector<RasRank> ranks{};
    std::vector<RasMissing> missing{};
};
struct RasStatus {
    std::string version{};  // of NCCL
    std::vector<RasCommunicator> communicators{};
};

// invalid: not JSON within the limits of parse_json(), a member that is missing or of another type,
// a rank that is out of range or twice in a communicator. Members it does not know are ignored.
Result<RasStatus> parse_ras_status(std::string_view text);

}  // namespace lockstep
