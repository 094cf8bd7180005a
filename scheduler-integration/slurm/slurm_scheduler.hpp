// The Slurm scheduler: hands attempts to Slurm, follows them with one batched query for all of
// them, and finds them again after anything may have gone wrong (slurm_attempt.hpp has the rules).
// Reads of the API never reach Slurm: poll() answers from the last query. Control thread only.
// Call stop() and let it finish before the object goes.
#pragma once

#include "job/async/task_group.hpp"
#include "scheduler-integration/scheduler.hpp"
#include "scheduler-integration/slurm/scheduler/attempt_files.hpp"
#include "scheduler-integration/slurm/scheduler/cancels.hpp"
#include "scheduler-integration/slurm/scheduler/counters.hpp"
#include "scheduler-integration/slurm/scheduler/leftovers.hpp"
#include "scheduler-integration/slurm/scheduler/link.hpp"
#include "scheduler-integration/slurm/scheduler/options.hpp"
#include "scheduler-integration/slurm/scheduler/pace.hpp"
#include "scheduler-integration/slurm/scheduler/questions.hpp"
#include "scheduler-integration/slurm/scheduler/site.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"
#include "scheduler-integration/slurm/scheduler/turns.hpp"
#include "scheduler-integration/slurm/slurm_attempt.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"
#include "scheduler-integration/slurm/slurm_driver.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class SlurmScheduler final : public SlurmDriver {
  public:
    using Options = SlurmSchedulerOptions;
    SlurmScheduler(net::io_context& io, const Clock& clock, std::unique_ptr<SlurmBackend> backend,
                   Options options);
    ~SlurmScheduler() override;

    // Asks Slurm what it is. not_found and invalid end the daemon's start; with unavailable it
    // starts all the same and asks again until Slurm answers.
    Task<Status> begin() override;

    std::string_view name() const override { return backend_->name(); }
    Result<Admission> admit(const JobSpec& spec) const override;
    Task<Handover> submit(AttemptRequest request) override;
    Task<Result<bool>> adopt(AttemptRequest request) override;
    Task<Observation> poll(JobId job, std::int32_t attempt) override;
    bool may_claim(const JobId& job, std::int32_t attempt, const std::string& allocation) override;
    void claimed(const JobId& job, std::int32_t attempt, const std::string& allocation) override;
    void expect_end(const JobId& job, std::int32_t attempt, bool done) override;
    Task<Status> cancel(JobId job, std::int32_t attempt) override;
    void over(const JobId& job, std::int32_t attempt) override;
    std::optional<std::string> leaving(const JobId& job) const override;
    Task<Status> ping() override;
    Cluster cluster() override;
    Result<std::optional<std::string>> script(const AttemptRequest& request) const override;
    Task<Result<std::optional<StartEstimate>>> estimate(AttemptRequest request) override;

    void on_change(Changed changed) override { changed_ = std::move(changed); }
    void know_ends(EndOf end_of) override;
    const SlurmCounters& counters();
    // What is known of this Slurm; nullptr before it has answered once.
    const SlurmFacts* facts() const { return site_.facts(); }
    SlurmBackend& backend() { return *backend_; }
    Task<void> stop() override;
    void agents_moved() override;

  private:
    SlurmTrackedPointer track(const AttemptRequest& request);
    SlurmTrackedPointer find(const JobId& job, std::int32_t attempt) const;
    void give_turn_back(SlurmTracked& tracked);  // and tells the next one
    Task<void> send(SlurmTrackedPointer tracked);
    Task<Status> write_script(const AttemptRequest& request);
    void note_unwritten(SlurmTracked& tracked, const std::string& why);
    Task<void> poll_loop();
    Task<void> query();
    Task<void> settle(SlurmTrackedPointer tracked, SteadyTime asked);
    void take_answer(const JobTable& table, SteadyTime asked);
    void tell(SlurmTracked& tracked);
    void forget_ended();

    net::io_context& io_;
    const Clock& clock_;
    std::unique_ptr<SlurmBackend> backend_;
    Options options_;
    Changed changed_;
    SlurmTrackedMap tracked_;
    SlurmTurns turns_;
    SlurmLink link_;
    SlurmPace pace_;
    SlurmSite site_;
    SlurmCounters counters_;
    SlurmLeftovers leftovers_;
    std::size_t estimates_ = 0;  // in flight
    UnixMillis begun_ = 0;       // this daemon's
    bool stopped_ = false;
    SlurmAttemptFiles files_;
    SlurmCancels cancels_;
    SlurmQuestions questions_;
    TaskGroup tasks_;
};

}  // namespace lockstep
