// What agents that cannot be asked any more have left in their attempt's folder. The machine asks
// through this, so that it reads no file itself. Control thread only.
#pragma once

#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"
#include "scheduler-integration/observation.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

class LeftBehind {
  public:
    virtual ~LeftBehind() = default;
    // How the ranks of a node ended; nothing if it left no result that reads back. timed_out,
    // unavailable: whether it did cannot be seen now.
    virtual Result<std::optional<wire::ResultFile>> result(const Attempt& attempt,
                                                           std::int32_t slot) const = 0;
    // Why its agent left without a result. What another one than `incarnation` said does not
    // count, unless that is "" (none has claimed it).
    virtual std::optional<wire::GaveUpFile> gave_up(const Attempt& attempt, std::int32_t slot,
                                                    const std::string& incarnation) const = 0;
    // Which agent was ended for memory, as the scheduler's own daemons said in the logs.
    virtual std::optional<MemoryEvidence> memory(const Attempt& attempt,
                                                 std::int32_t nodes) const = 0;
};

}  // namespace lockstep
