// Takes jobs in: a submission is checked, stored as one transaction, answered and put in line; one
// that is sent again is answered as before. What is stored stays accepted, whatever comes. Control
// thread only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"
#include "daemon/control/jobs/job_admission.hpp"
#include "daemon/control/jobs/job_lifecycle.hpp"
#include "daemon/store/job_records.hpp"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class Submissions {
  public:
    Submissions(ControlContext& context, JobRegistry& registry, JobAdmission& admission,
                JobLifecycle& lifecycle)
        : context_(context), registry_(registry), admission_(admission), lifecycle_(lifecycle) {}

    // As Control has them.
    Task<SubmitResult<Submitted>> submit(Caller caller, SubmitRequest request);
    Result<Json> render(const Caller& caller, const JobSpec& spec);
    Task<Json> start_estimate(JobSpec spec);

  private:
    struct NewJobs;  // what a submission stores, and what it becomes once it is stored

    Task<Status> check_after(Caller caller, std::vector<std::string> ids);
    Task<SubmitResult<NewJobs>> make_jobs(const Caller& caller, const SubmitRequest& request);
    // Gives the events their numbers.
    void number(NewJobs& made);
    Task<SubmitResult<Submitted>> answer_again(Caller caller, SubmitDone before);
    Task<SubmitResult<std::optional<Submitted>>> stored_before(const Caller& caller,
                                                               const SubmitRequest& request);
    Task<Result<std::string>> take_signature(std::string user, const SubmitRequest& request);
    SubmitResult<void> check_room(std::size_t count) const;  // for so many jobs more
    // submission_render.cpp
    SubmitResult<void> check_rendered(const std::string& user, const SubmitRequest& request,
                                      const std::vector<std::string>& warnings) const;
    std::filesystem::path runs_of(const std::string& user) const;

    ControlContext& context_;
    JobRegistry& registry_;
    JobAdmission& admission_;
    JobLifecycle& lifecycle_;
    std::set<std::pair<std::string, std::string>> in_flight_;  // (user, idempotency key)
};

}  // namespace lockstep
