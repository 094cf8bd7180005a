// size: one class, the parts of a job that change together
// One unfinished job: takes what happens to it one input at a time, makes events of it, appends
// them, and only then acts. What others see of the job is always durable. Control thread only; kept
// alive by the service, by its agents' links and by its own coroutine.
//
//   input → draft (copy of the job + new events) → append (fsync) → job = draft → effects → due()
#pragma once

#include "daemon/control/agent_link.hpp"
#include "daemon/control/context.hpp"
#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/node_witness.hpp"
#include "daemon/telemetry/anomalies.hpp"
#include "daemon/telemetry/exposition.hpp"
#include "daemon/telemetry/job_stats.hpp"
#include "job/model/invariants.hpp"
#include "job/model/job.hpp"
#include "job/model/job_view.hpp"
#include "job/model/recovery.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

struct AgentInput {
    std::shared_ptr<AgentLink> link;
    wire::AgentMessage message;
};
struct AgentGoneInput {
    std::shared_ptr<AgentLink> link;
};
struct CancelInput {
    std::string by;
    std::function<void(Status)> done;  // after it is durable (or could not be made so)
};
struct RestartInput {
    std::string by;
    std::function<void(Status)> done;  // conflict: nothing runs that could be started again
};
struct SaveInput {
    std::string by;
    // conflict: no rank runs, or one would die of the signal; else the agents have been told.
    std::function<void(Status)> done;
};
struct EvidenceInput {
    std::string by;
    std::function<void(Status)> done;  // conflict: no rank runs; else the agents have been asked
};
struct DependencyInput {
    std::string after;  // a job that it was to run after, and that has not succeeded
};
struct LookInput {};  // the scheduler may have news
using JobInput = std::variant<AgentInput, AgentGoneInput, CancelInput, RestartInput, SaveInput,
                              DependencyInput, LookInput, EvidenceInput>;

// A full disk is looked at again this often; nothing of the job is lost meanwhile.
inline constexpr auto kStoreRetry = std::chrono::seconds{1};

class JobActor;

// What the service does about a job. Control thread.
struct JobHooks {
    std::function<void(JobActor&, const std::vector<Event>&)> on_events;  // after the append
    // What of the events is to be told, for the same append; and that it is stored.
    std::function<std::vector<NoticeRow>(const Job&, const std::vector<Event>&)> notices_of;
    std::function<void()> on_notices;
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
    // Lets go of the agents, which hold the actor; after stop(), once its coroutine has ended.
    void forget_agents();

    const Job& job() const { return job_; }
    bool over() const { return finished_; }
    // It waits in the scheduler's queue for what no place there brings nearer: a person, a time,
    // another job.
    bool aside() const { return aside_; }
    ControlContext& context() { return context_; }
    // The job as the API shows it now; rebuilt when the job or its telemetry has changed.
    std::shared_ptr<const std::string> view();
    LiveView live() const;
    // From telemetry, at most 250 ms old; nullptr if nothing was reported.
    const telemetry::JobStats* stats();
    // What /metrics shows beside the job's events and series.
    void describe(telemetry::JobMetricsView& view) const;
    // A rank's process as its agent has told; nothing: not (yet).
    const wire::StartedRank* process(std::int32_t rank) const;
    // By slot: a node of the allocation.
    const std::map<std::int32_t, std::shared_ptr<AgentLink>>& links() const { return run_.links; }
    // Whether a node of that name is the newest attempt's, as the scheduler says.
    bool was_given(const std::string& node) const;

    void set_pending_reason(std::string reason, UnixMillis expected_start = 0);

  private:
    // The job as it will be. While nothing has happened to it, it is the one that is: most of what
    // agents say makes no event, and a large job is not copied for it.
    class Draft {
      public:
        explicit Draft(const Job& now) : now_(&now) {}
        const Job& job() const { return own_ ? *own_ : *now_; }
        Job& own() {
            if (!own_) {
                own_ = std::make_unique<Job>(*now_);
            }
            return *own_;
        }
        std::vector<Event> events;
        std::vector<std::function<void()>> effects;  // after the append
        std::vector<std::function<void(Status)>> answers;
        // What agents are told was heard, after the append: each once, however much it was.
        std::vector<std::pair<std::shared_ptr<AgentLink>, std::uint64_t>> heard;
        bool starts = false;  // START to whoever is ready is among the effects

      private:
        const Job* now_;
        std::unique_ptr<Job> own_;
    };

    Task<void> run();
    bool large() const;
    bool nodes_are_due();
    Task<void> wait_for_input();
    Task<void> take_inputs();
    Task<bool> commit(Draft draft);
    Task<void> commit_and_look(Draft draft);
    NodeNotes vouched_notes(const Draft& draft, NodeNotes& later) const;
    Draft draft() const { return Draft{job_}; }
    bool add(Draft& draft, EventData data);
    void report_broken(Invariant invariant, const Event& event);
    JobRow row(const Job& job) const;

    // job_actor_agents.cpp
    void take(Draft& draft, AgentInput& input);
    void take(Draft& draft, AgentGoneInput& input);
    void take(Draft& draft, CancelInput& input);
    void take(Draft& draft, RestartInput& input);
    void take(Draft& draft, DependencyInput& input);
    void take(Draft& draft, LookInput& input);
    void take(Draft& draft, EvidenceInput& input);
    void hello(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Hello& hello);
    void exited(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Exited& exited);
    void fault(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Fault& fault);
    void warned(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Warned& warned);
    void gpu_xid(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::GpuXid& xid);
    void checkpoint(Draft& draft, const std::shared_ptr<AgentLink>& link,
                    const wire::CheckpointSaved& saved);
    void keys(const std::shared_ptr<AgentLink>& link, const wire::KeyRequest& request);
    void send_answers(const std::vector<KeyExchange::Answer>& answers);
    void acknowledge_late(const std::shared_ptr<AgentLink>& link,
                          const wire::AgentMessage& message);
    std::string welcome(const AgentLink& link);
    const SecretStore::Values& secrets_now();
    bool current(const AgentLink& link, std::int32_t generation) const;
    void fence(const std::shared_ptr<AgentLink>& link, std::string why);
    std::string unwelcome(const Job& job, const AgentLink& link, const wire::Hello& hello);
    // The same as fence() for one that has just called in; its job's events say so.
    void refuse(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Hello& hello,
                std::string why);

    // job_actor_rendezvous.cpp
    void join(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Join& join);
    void ready(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Ready& ready);
    void node_started(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Started& started);
    void form_generation(Draft& draft);
    void begin_generation();
    wire::World world() const;
    std::vector<std::string> admitted() const;
    void send_table(const std::shared_ptr<AgentLink>& link, const wire::TableRequest& request);
    void bye(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Bye& bye);
    std::string own_address(const AgentLink& link, std::int32_t node_rank) const;
    void send_world(const std::shared_ptr<AgentLink>& link);
    bool abort_if_over(const std::shared_ptr<AgentLink>& link, std::int32_t generation);
    void release_if_ready(Draft& draft, const std::shared_ptr<AgentLink>& link);
    bool may_start(std::int32_t slot) const;

    // job_actor_elastic.cpp: generations of fewer nodes, and lost ones that come back
    bool welcome_back(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Hello& hello);
    void hear_lost(Draft& draft, const std::shared_ptr<AgentLink>& link,
                   const wire::AgentMessage& message);
    void come_back(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Join& join);
    void accept(const std::shared_ptr<AgentLink>& link, bool capable);
    bool waits_for_more(const Job& job, const std::vector<std::int32_t>& members) const;
    std::string size_words(const Job& job, const std::vector<std::int32_t>& members) const;
    void look_at_growth(Draft& draft);
    std::vector<std::int32_t> more_nodes(const Job& job) const;
    std::int64_t newest_checkpoint(const Job& job) const;

    // job_actor_gather.cpp: who is missing
    std::string why_missing(std::int32_t slot) const;
    std::string missing_nodes() const;
    void tell_missing();

    // job_actor_preflight.cpp
    bool wants_preflight() const;
    void expect_facts(const AgentLink& link, bool capable);
    void checked(Draft& draft, const std::shared_ptr<AgentLink>& link,
                 const wire::Checked& checked);
    void probed(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Probed& probed);
    void look_at_preflight(Draft& draft);
    void take_judgement(Draft& draft, const PreflightState::Judgement& judgement);
    // job_actor_pairs.cpp
    bool pairs_wanted(const Job& job) const;
    bool pairs_done(const Job& job) const;
    void pair_tested(Draft& draft, const std::shared_ptr<AgentLink>& link,
                     const wire::PairTested& tested);
    void look_at_pairs(Draft& draft);
    void send_pairs(const PairState::Groups& groups);
    void tell_findings(Draft& draft, const std::vector<PreflightFinding>& findings);
    std::string address_of(const Job& job, std::int32_t slot) const;

    // What due() asks for.
    Task<void> act();
    Task<void> conclude();

    // job_actor_recovery.cpp: from one generation or attempt to the next, and hangs
    Task<void> restart_ranks(Cause cause);
    void send_abort(const std::string& reason);
    bool may_have_ranks(std::int32_t node) const;
    bool ranks_are_left() const;
    void lose_stuck_nodes(Draft& draft);
    void expect_end_if_left();
    // What may follow in the same append; `look`: nothing, the allocation is over.
    enum class AfterEnd : std::uint8_t { look, next_generation };
    bool add_generation_end(Draft& draft, const Cause& cause);
    void add_attempt_end(Draft& draft, const Cause& cause);
    Task<void> end_generation(Cause cause, AfterEnd after);
    Task<void> end_attempt(Cause cause);
    std::int64_t last_step() const;
    void forget_attempt();
    void look_for_hang(Draft& draft);
    void watch_for_hang(Draft& draft);
    void hang_is_over(Draft& draft);
    bool waits_at_start();
    event::FaultSeen hang_fault() const;
    event::AnomalySeen hang_warning(const Job& job, const event::FaultSeen& fault) const;
    // At most once in a while; `last`: now, since its ranks have ended.
    void look_for_anomalies(Draft& draft, bool last = false);
    void note_nonfinite_loss(Draft& draft, const telemetry::Anomaly& found);

    // job_actor_checkpoint.cpp: the ranks are asked to write one
    void take(Draft& draft, SaveInput& input);
    void can_save(Draft& draft, const std::shared_ptr<AgentLink>& link,
                  const wire::CanSave& answer);
    void save_asked(Draft& draft, const std::shared_ptr<AgentLink>& link,
                    const wire::SaveAsked& asked);
    void tell_checkpoint(Draft& draft, bool last);
    void ask_who_can_save(const Job& job, SaveInput& input);
    void order_save(Draft& draft, const std::string& by);
    void look_at_saving(Draft& draft);
    bool saving_is_late() const;
    void end_saving(const Status& status);

    // job_actor_evidence.cpp
    void ask_for_evidence(HangWatch::Verdict verdict, std::string reason, bool hang,
                          bool gentle = false);
    void examined(const std::shared_ptr<AgentLink>& link, const wire::Examined& examined);
    void evidence_saved(const std::shared_ptr<AgentLink>& link, const wire::EvidenceSaved& saved);
    bool evidence_is_in() const;
    void add_evidence(Draft& draft);

    // job_actor_place.cpp: what it asks of the scheduler
    Task<void> create_attempt();
    Task<void> place();
    std::vector<std::string> missing_secrets_now() const;
    Task<bool> hand_over();
    void look_whether_aside(const Observation& seen);
    void set_aside(bool aside);
    Task<void> wait_in_queue(Observation seen);
    void warn(Draft& draft, const std::string& message, const std::string& node = "");
    void look_at_outlived(Draft& draft, const Observation& seen);
    Task<void> end_unclaimed(const Observation& seen);
    std::optional<wire::GaveUpFile> first_last_words() const;
    Task<Observation> allocation();
    void learn_nodes(const Observation& seen);
    void tell_foreign_nodes(Draft& draft);
    Task<void> look_at_allocation();
    Task<void> stop_attempt(Cause cause);
    Task<bool> verdict();
    bool wants_verdict() const;
    void add_verdict(Draft& draft, const Observation& seen);
    void add_doubt(Draft& draft, const Observation& seen);
    std::optional<std::int32_t> longest_silent() const;
    std::optional<std::chrono::steady_clock::time_point> last_sign(const std::string& node) const;

    // job_actor_results.cpp: agents that are not heard any more
    bool gone_for_good(std::int32_t slot) const;
    std::optional<std::chrono::steady_clock::time_point> heard(std::int32_t slot) const;
    void forgive_silence();
    std::int32_t spares_at_hand() const;
    std::int32_t nodes_to_spare(const Job& job) const;
    bool silent_before(const Job& job, std::chrono::steady_clock::time_point time) const;
    void note_lost_agents(Draft& draft);
    void lose(Draft& draft, std::int32_t slot, event::FaultSeen fault);
    void give_up(Draft& draft, std::int32_t slot, bool may_return = false);
    void read_results(Draft& draft, const Observation& seen);
    void read_result_of(Draft& draft, std::int32_t slot);
    event::FaultSeen how_it_was_lost(const Job& job, std::int32_t slot,
                                     const Observation& seen) const;
    void blame_memory(const Attempt& attempt, event::FaultSeen& fault) const;
    AttemptRequest request() const;

    ControlContext& context_;
    JobHooks hooks_;
    Job job_;
    std::deque<JobInput> inputs_;
    // What the draft being stored cannot take yet; goes before the inputs once it is stored.
    std::vector<JobInput> deferred_;
    net::steady_timer wake_;              // every input ends this sleep
    net::steady_timer retry_;             // and this one only stop()
    std::chrono::microseconds round_{0};  // what was computed since the last inputs
    bool started_ = false;
    bool stopping_ = false;
    bool finished_ = false;
    bool aside_ = false;

    // Beside the events: what only lives while the daemon does. What is true of an attempt or of a
    // generation goes with it; what is here is the job's.
    AttemptRun run_;
    std::optional<std::chrono::steady_clock::time_point> looked_;        // for silent agents
    std::optional<std::chrono::steady_clock::time_point> nodes_looked_;  // see nodes_are_due()
    bool look_skipped_ = false;                                          // it was too soon for one
    std::string pending_reason_;
    UnixMillis expected_start_ = 0;
    // Which ranks would die of the signal for a checkpoint is being asked. Of one generation, but
    // whoever asked is answered also when that has ended.
    struct Saving {
        std::int32_t generation;
        std::int32_t round;
        std::string by;
        std::chrono::steady_clock::time_point since;
        std::set<std::int32_t> awaited;  // slots
        std::string problem;             // of the first that was heard; "" = none so far
        std::vector<std::function<void(Status)>> done;
    };
    std::optional<Saving> saving_;
    std::int32_t saving_round_ = 0;

    NodeWitness witness_;

    std::array<bool, kInvariants> broken_reported_{};
    SecretStore::Values secrets_;  // of the attempt with this number
    std::int32_t secrets_attempt_ = 0;
    std::string spec_text_;  // for WELCOME; "" = nobody has called in yet
    std::string document_;   // the same, of a job that is signed
    std::shared_ptr<const std::string> view_;
    std::chrono::steady_clock::time_point view_at_;
    telemetry::AnomalyWatch anomaly_watch_;
    std::optional<std::chrono::steady_clock::time_point> anomalies_at_;  // last looked for
    bool resumed_ = false;  // ranks of it ran before this daemon began
};

}  // namespace lockstep
