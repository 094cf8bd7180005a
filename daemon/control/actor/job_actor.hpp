// The driver of one unfinished job: takes what happens to it one input at a time, has the machine
// (machine/job_machine.hpp) make events and intentions of it, appends the events, and only then
// acts. What others see of the job is always durable. What it all means is the machine's matter.
// Its parts: JobPlacement asks the scheduler, JobEffects does what the machine wants done, JobFace
// is what others see of the job. Control thread only; kept alive by the registry, by its agents'
// links and by its own coroutine.
//
//   input → draft (copy of the job + new events) → append (fsync) → job = draft → effects → due()
#pragma once

#include "daemon/control/actor/attempt_leftovers.hpp"
#include "daemon/control/actor/dropped_reports.hpp"
#include "daemon/control/actor/job_append.hpp"
#include "daemon/control/actor/job_effects.hpp"
#include "daemon/control/actor/job_face.hpp"
#include "daemon/control/actor/job_hooks.hpp"
#include "daemon/control/actor/job_placement.hpp"
#include "daemon/control/actor/job_steps.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/telemetry/exposition/exposition.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "job/model/job.hpp"
#include "job/model/job_view.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// A full disk is looked at again this often; nothing of the job is lost meanwhile.
inline constexpr auto kStoreRetry = std::chrono::seconds{1};

class JobActor : public std::enable_shared_from_this<JobActor>, private JobSteps {
  public:
    JobActor(ControlContext& context, JobHooks hooks, Job job);

    // Starts the coroutine; without it the job waits as accepted. Idempotent.
    void start();
    bool started() const { return started_; }
    void post(JobInput input);
    // Ends the coroutine without touching the job: the daemon is stopping.
    void stop();
    // Closes the agents' connections.
    void close_agents(const std::string& why);
    // Lets go of the agents, which hold the actor; after stop(), once its coroutine has ended.
    void forget_agents();

    const Job& job() const { return machine_.job(); }
    bool over() const { return finished_; }
    // It waits in the scheduler's queue for what no place there brings nearer: a person, a time,
    // another job.
    bool aside() const { return placement_.aside(); }
    ControlContext& context() { return context_; }
    // The job as the API shows it now; rebuilt when the job or its telemetry has changed.
    std::shared_ptr<const std::string> view() {
        return face_.view([this] { return now(); });
    }
    LiveView live() const { return face_.live(); }
    // As the scheduler estimates it while the job waits; 0 = unknown.
    UnixMillis expected_start() const { return machine_.expected_start(); }
    // From telemetry, at most 250 ms old; nullptr if nothing was reported.
    const telemetry::JobStats* stats() { return machine_.stats(now()); }
    // What /metrics shows beside the job's events and series.
    void describe(telemetry::JobMetricsView& view) const { face_.describe(view); }
    // A rank's process as its agent has told; nothing: not (yet).
    const wire::StartedRank* process(std::int32_t rank) const { return machine_.process(rank); }
    // By slot: a node of the allocation.
    const std::map<std::int32_t, AgentPtr>& links() const { return machine_.run().links; }
    // Whether a node of that name is the newest attempt's, as the scheduler says.
    bool was_given(const std::string& node) const { return placement_.was_given(node); }
    // Reports that an agent's node has lost, `total` of them so far: how many of those are news.
    std::uint64_t newly_dropped(const Agent& agent, std::uint64_t total) {
        return dropped_.take(agent, total);
    }
    void set_pending_reason(std::string reason) { machine_.set_pending_reason(std::move(reason)); }

  private:
    // JobSteps, for its parts.
    Surroundings now() const override;
    void prepare(Draft& draft) override { append_.prepare(draft); }
    void perform(Effects effects) override { effects_.perform(std::move(effects)); }
    Task<bool> commit(Draft& draft) override { return append_.commit(draft, round_); }
    Task<bool> commit_and_look(Draft draft) override;
    Task<void> rest() override;
    Task<void> flush_telemetry() override { return hooks_.flush_telemetry(); }
    void look_again() override { inputs_.emplace_back(LookInput{}); }
    bool inputs_wait() const override { return !inputs_.empty(); }
    void attempt_created() override { hooks_.on_attempt(*this); }
    void aside_changed() override { hooks_.on_aside(*this); }
    Task<void> conclude() override;

    // One round after the other.
    Task<void> run();
    Task<void> wait_for_input();
    Task<void> take_inputs();
    Task<void> act();
    void take_late(JobInput input);
    void finish();
    bool large() const;

    ControlContext& context_;
    JobHooks hooks_;
    AttemptLeftovers files_;
    JobMachine machine_;
    std::deque<JobInput> inputs_;
    bool finished_ = false;
    JobEffects effects_;
    JobFace face_;
    JobPlacement placement_;
    JobAppend append_;
    net::steady_timer wake_;              // every input ends this sleep
    net::steady_timer retry_;             // and this one only stop()
    std::chrono::microseconds round_{0};  // what was computed since the last inputs
    bool started_ = false;
    bool stopping_ = false;
    DroppedReports dropped_;
};

}  // namespace lockstep
