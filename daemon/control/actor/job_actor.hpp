// The driver of one unfinished job: takes what happens to it one input at a time, has the machine
// (machine/job_machine.hpp) make events and intentions of it, appends the events, and only then
// acts. What others see of the job is always durable. It asks the scheduler, the store and the
// clocks; what it all means is the machine's matter. Control thread only; kept alive by the
// registry, by its agents' links and by its own coroutine.
//
//   input → draft (copy of the job + new events) → append (fsync) → job = draft → effects → due()
#pragma once

#include "daemon/control/actor/agent_link.hpp"
#include "daemon/control/actor/node_witness.hpp"
#include "daemon/control/actor/owed_notices.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"
#include "daemon/telemetry/exposition/exposition.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "job/model/invariants.hpp"
#include "job/model/job.hpp"
#include "job/model/job_view.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// A full disk is looked at again this often; nothing of the job is lost meanwhile.
inline constexpr auto kStoreRetry = std::chrono::seconds{1};

class JobActor;

// What the rest of control does about a job (job_lifecycle.hpp). Control thread.
struct JobHooks {
    std::function<void(JobActor&, const std::vector<Event>&)> on_events;  // after the append
    // What of the events is to be told, for the same append; and that it is stored.
    std::function<OwedNotices(const Job&, const std::vector<Event>&)> notices_of;
    std::function<void(OwedNotices)> on_notices;
    std::function<void(JobActor&)> on_attempt;   // a ticket is good from now on
    std::function<void(JobActor&)> on_finished;  // once; the coroutine ends after it
    std::function<void(JobActor&)> on_aside;     // aside() has changed
    // Every batch that has arrived is durable and in the series.
    std::function<Task<void>()> flush_telemetry;
};

class JobActor : public std::enable_shared_from_this<JobActor> {
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
    bool aside() const { return aside_; }
    ControlContext& context() { return context_; }
    // The job as the API shows it now; rebuilt when the job or its telemetry has changed.
    std::shared_ptr<const std::string> view();
    LiveView live() const;
    // From telemetry, at most 250 ms old; nullptr if nothing was reported.
    const telemetry::JobStats* stats() { return machine_.stats(now()); }
    // What /metrics shows beside the job's events and series.
    void describe(telemetry::JobMetricsView& view) const;
    // A rank's process as its agent has told; nothing: not (yet).
    const wire::StartedRank* process(std::int32_t rank) const { return machine_.process(rank); }
    // By slot: a node of the allocation.
    const std::map<std::int32_t, AgentPtr>& links() const { return machine_.run().links; }
    // Whether a node of that name is the newest attempt's, as the scheduler says.
    bool was_given(const std::string& node) const;

    void set_pending_reason(std::string reason, UnixMillis expected_start = 0);

  private:
    // The files of the attempt's folder, read where the machine asks.
    class Files final : public LeftBehind {
      public:
        explicit Files(const Scheduler& scheduler) : scheduler_{scheduler} {}
        std::optional<wire::ResultFile> result(const Attempt& attempt,
                                               std::int32_t slot) const override;
        std::optional<wire::GaveUpFile> gave_up(const Attempt& attempt, std::int32_t slot,
                                                const std::string& incarnation) const override;
        std::optional<MemoryEvidence> memory(const Attempt& attempt,
                                             std::int32_t nodes) const override;

      private:
        const Scheduler& scheduler_;
    };

    // job_actor.cpp: one round after the other
    Task<void> run();
    Task<void> wait_for_input();
    Task<void> take_inputs();
    Task<bool> commit(Draft& draft);
    // After what must be acted on at once; on a full disk not before it has been tried again in a
    // while. True: it was stored.
    Task<bool> commit_and_look(Draft draft);
    Task<void> act();
    Task<void> conclude();
    Surroundings now() const;
    Draft draft() const { return machine_.draft(now()); }
    bool large() const;
    bool nodes_are_due();
    void report_broken(Invariant invariant, const Event& event);
    // What a draft wants at once; by commit(), and for one that is not to be stored.
    void prepare(Draft& draft);
    void settle(Draft& draft, NodeNotes later, OwedNotices owed);
    void perform(Effects effects);
    void perform(effect::Send& one);
    void perform(effect::SendShared& one);
    void perform(effect::Greet& one);
    void perform(effect::Close& one);
    void perform(effect::Acknowledge& one);
    void perform(effect::Answer& one);
    void perform(effect::Claimed& one);
    void perform(effect::ExpectEnd& one);
    void perform(effect::AttemptOver& one);
    void perform(effect::LookAgain& one);
    void perform(effect::HearAgain& one);

    // job_actor_view.cpp: what others see of it, its agents among them
    std::string welcome(const Agent& link);
    const SecretStore::Values& secrets_now();
    JobRow row(const Job& job) const;
    NodeNotes vouched_notes(const Draft& draft, NodeNotes& later) const;

    // job_actor_place.cpp: what it asks of the scheduler
    Task<void> create_attempt();
    Task<void> place();
    std::vector<std::string> missing_secrets_now() const;
    Task<bool> hand_over();
    AttemptRequest request() const;
    void look_whether_aside(const Observation& seen);
    void set_aside(bool aside);
    Task<void> wait_in_queue(Observation seen);
    Task<void> end_unclaimed(const Observation& seen);
    std::optional<wire::GaveUpFile> first_last_words() const;
    Task<Observation> allocation();
    void learn_nodes(const Observation& seen);
    void tell_foreign_nodes(Draft& draft);
    Task<void> look_at_allocation();
    Task<void> restart_ranks(Cause cause);
    Task<void> end_generation(Cause cause, JobMachine::AfterEnd after);
    Task<void> stop_attempt(Cause cause);
    Task<void> next_attempt(Cause cause);
    Task<Status> adopt();
    Task<bool> verdict();

    ControlContext& context_;
    JobHooks hooks_;
    Files files_;
    JobMachine machine_;
    std::deque<JobInput> inputs_;
    net::steady_timer wake_;              // every input ends this sleep
    net::steady_timer retry_;             // and this one only stop()
    std::chrono::microseconds round_{0};  // what was computed since the last inputs
    bool started_ = false;
    bool stopping_ = false;
    bool finished_ = false;
    bool aside_ = false;

    std::optional<std::chrono::steady_clock::time_point> nodes_looked_;  // see nodes_are_due()
    bool look_skipped_ = false;                                          // it was too soon for one
    NodeWitness witness_;
    std::array<bool, kInvariants> broken_reported_{};
    SecretStore::Values secrets_;  // of the attempt with this number
    std::int32_t secrets_attempt_ = 0;
    std::string spec_text_;  // for WELCOME; "" = nobody has called in yet
    std::string document_;   // the same, of a job that is signed
    std::shared_ptr<const std::string> view_;
    std::string view_reason_;  // the pending reason and the start that `view_` shows
    UnixMillis view_start_ = 0;
    std::chrono::steady_clock::time_point view_at_;
};

}  // namespace lockstep
