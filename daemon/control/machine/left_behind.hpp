// What agents that cannot be asked any more have left in their attempt's folder. The machine asks
// through this, so that it reads no file itself. Control thread only.
#pragma once

#include "job/model/job.hpp"
#include "job/model/wire.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// Which node's agent was ended for memory, and the line that says so, from the last words that
// Slurm left in the attempt's logs.
struct MemoryEvidence {
    std::int32_t node_rank = -1;  // -1: only the batch log has it
    std::string line;
};

class LeftBehind {
  public:
    virtual ~LeftBehind() = default;
    // How the ranks of a node ended; nothing if it left no result that reads back.
    virtual std::optional<wire::ResultFile> result(const Attempt& attempt,
                                                   std::int32_t slot) const = 0;
    // Why its agent left without a result. What another one than `incarnation` said does not
    // count, unless that is "" (none has claimed it).
    virtual std::optional<wire::GaveUpFile> gave_up(const Attempt& attempt, std::int32_t slot,
                                                    const std::string& incarnation) const = 0;
    virtual std::optional<MemoryEvidence> memory(const Attempt& attempt,
                                                 std::int32_t nodes) const = 0;
};

}  // namespace lockstep
