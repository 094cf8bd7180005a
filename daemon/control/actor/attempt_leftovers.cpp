#include "daemon/control/actor/attempt_leftovers.hpp"

#include "daemon/control/base/attempt_files.hpp"

namespace lockstep {

Result<std::optional<wire::ResultFile>> AttemptLeftovers::result(const Attempt& attempt,
                                                                 std::int32_t slot) const {
    return read_result(attempt.directory, slot);
}

std::optional<wire::GaveUpFile> AttemptLeftovers::gave_up(const Attempt& attempt, std::int32_t slot,
                                                          const std::string& incarnation) const {
    return read_gave_up(attempt.directory, slot, incarnation);
}

std::optional<MemoryEvidence> AttemptLeftovers::memory(const Attempt& attempt,
                                                       std::int32_t nodes) const {
    return scheduler_.memory_evidence(attempt.directory, nodes);
}

}  // namespace lockstep
