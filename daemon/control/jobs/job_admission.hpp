// Room for jobs: how many each user may have and submit, and which accepted job goes to the
// scheduler next (one after another of each user, behind the jobs it is to run after, no more at a
// time than the scheduler is to see). Control thread only; the jobs' actors call it as long as they
// run.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/user_quotas.hpp"
#include "daemon/control/jobs/hand_over_window.hpp"
#include "daemon/control/jobs/waiting_line.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class JobAdmission {
  public:
    // How the jobs stand that one is to run after; true at the moment it returns.
    struct After {
        std::set<std::string> waiting;  // not over
        std::string failed;             // one that did not succeed; "" = none
    };

    JobAdmission(ControlContext& context, const JobRegistry& registry)
        : context_(context), registry_(registry) {}

    // For so many new jobs of the user; exhausted as UserQuotas says.
    Result<UserQuotas::Hold> take_room(const std::string& user, std::size_t count);
    // exhausted: the caller's jobs take the room on disk that one user's may take. Not of admins,
    // who have to be able to see to it.
    Status check_stored(const Caller& caller) const;
    // The job is unfinished from now on.
    void begin(const Job& job) { quotas_.begun(job.user); }
    // The errors are the store's.
    Task<Result<After>> look_at_after(std::vector<std::string> ids);
    // New jobs that are stored, all with the same `after`: each takes its place, or ends at once if
    // what it was to run after has failed meanwhile.
    Task<Status> stand_in_line(std::vector<JobRegistry::ActorPtr> actors);
    // A job that an earlier daemon accepted is where it was: with the scheduler, or in line.
    void take_up(JobActor& actor, const After& after);
    // JobActor::aside() has changed.
    void set_aside(JobActor& actor);
    // The job is over; what it held up moves on.
    void finish(const Job& job);
    // Hands jobs to the scheduler as the line has them and the window takes them.
    void admit_next();
    // From now on none goes to the scheduler.
    void halt() { halted_ = true; }

  private:
    static WaitingLine::Entry entry(const Job& job, std::set<std::string> after);
    void move_on(const std::string& id, bool succeeded);
    void admit_next_soon();

    ControlContext& context_;
    const JobRegistry& registry_;
    UserQuotas quotas_;
    WaitingLine line_;       // accepted
    HandOverWindow window_;  // those with the scheduler
    bool halted_ = false;
};

}  // namespace lockstep
