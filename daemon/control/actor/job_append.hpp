// The step from a draft to the job: what it wants at once is done, its events are appended, then
// the draft is the job, and what follows is told and done. Control thread; called by the job's
// coroutine alone; what it is made with must outlive it.
#pragma once

#include "daemon/control/actor/job_effects.hpp"
#include "daemon/control/actor/job_face.hpp"
#include "daemon/control/actor/job_hooks.hpp"
#include "daemon/control/actor/job_placement.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "job/model/invariants.hpp"

#include <array>
#include <chrono>

namespace lockstep {

// Adds what passes while it lives.
class RoundTime {
  public:
    explicit RoundTime(std::chrono::microseconds& sum) : sum_(sum) {}
    ~RoundTime() {
        sum_ += std::chrono::duration_cast<std::chrono::microseconds>(
            std::chrono::steady_clock::now() - began_);
    }
    RoundTime(const RoundTime&) = delete;
    RoundTime& operator=(const RoundTime&) = delete;

  private:
    std::chrono::microseconds& sum_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

class JobAppend {
  public:
    struct Parts {
        ControlContext& context;
        JobHooks& hooks;
        JobMachine& machine;
        JobEffects& effects;
        JobFace& face;
        JobPlacement& placement;
    };
    // `actor`: whom the hooks are told of.
    JobAppend(JobActor& actor, JobSteps& steps, Parts parts)
        : actor_{actor}, steps_{steps}, parts_{parts} {}

    // See JobSteps.
    void prepare(Draft& draft);
    // `spent` grows by what was computed for it.
    Task<bool> commit(Draft& draft, std::chrono::microseconds& spent);
    // The job's last event, how it ended. False: not stored, or nothing says how; it has waited.
    Task<bool> append_end(std::chrono::microseconds& spent);

  private:
    const Job& job() const { return parts_.machine.job(); }
    void settle(Draft& draft, NodeNotes later, OwedNotices owed);
    void report_broken(Invariant invariant, const Event& event);

    JobActor& actor_;
    JobSteps& steps_;
    Parts parts_;
    std::array<bool, kInvariants> broken_reported_{};
};

}  // namespace lockstep
