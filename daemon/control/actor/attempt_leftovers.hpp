// The files that an attempt's agents and its scheduler have left in its folder, read where the
// machine asks. The scheduler must outlive it. Control thread.
#pragma once

#include "daemon/control/machine/left_behind.hpp"
#include "scheduler-integration/scheduler.hpp"

namespace lockstep {

class AttemptLeftovers final : public LeftBehind {
  public:
    explicit AttemptLeftovers(const Scheduler& scheduler) : scheduler_{scheduler} {}
    Result<std::optional<wire::ResultFile>> result(const Attempt& attempt,
                                                   std::int32_t slot) const override;
    std::optional<wire::GaveUpFile> gave_up(const Attempt& attempt, std::int32_t slot,
                                            const std::string& incarnation) const override;
    std::optional<MemoryEvidence> memory(const Attempt& attempt, std::int32_t nodes) const override;

  private:
    const Scheduler& scheduler_;
};

}  // namespace lockstep
