// Control for real: owns the unfinished jobs, admits them to the scheduler in turn, lets agents
// in, answers queries. Control thread only. Everything given to it outlives it.
#pragma once

#include "daemon/control/context.hpp"
#include "daemon/control/control.hpp"
#include "daemon/control/hand_over_window.hpp"
#include "daemon/control/history_keeper.hpp"
#include "daemon/control/ingest.hpp"
#include "daemon/control/job_registry.hpp"
#include "daemon/control/notifier.hpp"
#include "daemon/control/retention.hpp"
#include "daemon/control/user_quotas.hpp"
#include "daemon/control/waiting_line.hpp"
#include "daemon/telemetry/exposition.hpp"
#include "daemon/telemetry/rendezvous_metrics.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

class JobActor;
struct JobHooks;

class ControlService final : public Control, public AgentGate {
  public:
    explicit ControlService(ControlContext& context);
    ~ControlService() override;

    // Loads what is unfinished; before the listeners open. An error means that the store cannot be
    // read: do not start.
    Task<Status> load_jobs();
    // Takes it up again; once the listeners are open and the agents' URL is known.
    // `page_url`: of the API and the page, for links in notices; "" = they have none.
    void begin(AgentsListener agents, const std::string& page_url = "");
    // Agents are listened for in another way (a renewed certificate): from now on attempts are told
    // so, and those that are under way before this returns.
    Task<void> serve_agents_as(AgentsListener agents);
    // Stops every coroutine; jobs and agents go on without the daemon.
    Task<void> stop();
    // When an attempt ended; see Scheduler::EndOf.
    Task<Result<UnixMillis>> end_of(JobId job, std::int32_t attempt) {
        return registry_.end_of(std::move(job), attempt);
    }
    // The scheduler has news of an attempt; a hint, control polls anyway.
    void scheduler_changed(const JobId& job);

    Task<Result<Submitted>> submit(Caller caller, SubmitRequest request) override;
    Result<Json> render(const Caller& caller, const JobSpec& spec) override;
    Task<Json> start_estimate(JobSpec spec) override;
    Result<std::shared_ptr<const std::string>> show_now(const Caller& caller,
                                                        std::string_view id) override {
        return registry_.show_now(caller, id);
    }
    Task<Result<std::shared_ptr<const std::string>>> show(Caller caller, std::string id) override {
        return registry_.show(std::move(caller), std::move(id));
    }
    Task<Result<std::string>> list(Caller caller, JobQuery query) override;
    Task<Result<std::string>> cancel(Caller caller, std::string id) override;
    Task<Result<std::string>> restart(Caller caller, std::string id) override;
    Task<Result<std::string>> checkpoint(Caller caller, std::string id) override;
    // evidence_queries.cpp
    Task<Result<std::string>> evidence(Caller caller, std::string id, std::size_t limit) override;
    Task<Result<EvidencePlace>> evidence_place(Caller caller, std::string id,
                                               EvidenceQuery query) override;
    Task<Result<std::string>> take_evidence(Caller caller, std::string id) override;
    Task<Result<std::string>> cancel_sweep(Caller caller, std::string id) override;
    // removal.cpp
    Task<Result<std::string>> remove(Caller caller, std::string id, bool keep_checkpoints) override;
    Task<Result<DiskPlace>> disk(Caller caller, std::string id) override;
    Task<Result<std::string>> spec(Caller caller, std::string id) override;
    Task<Result<std::string>> script(Caller caller, std::string id) override;
    Task<Result<std::string>> events(Caller caller, std::string id, EventsQuery query) override;
    Task<Result<std::string>> ranks(Caller caller, std::string id, RanksQuery query) override;
    Task<Result<std::string>> job_nodes(Caller caller, std::string id) override;
    Task<Result<std::string>> series(Caller caller, std::string id, SeriesQuery query) override;
    Task<Result<std::string>> heatmap(Caller caller, std::string id, HeatmapQuery query) override;
    Task<Result<std::string>> samples(Caller caller, std::string id, SamplesQuery query) override;
    Task<Result<std::string>> metric_names(Caller caller, std::string id) override;
    // gpu_queries.cpp
    Task<Result<std::string>> gpus(Caller caller, std::string id, std::size_t offset,
                                   std::size_t limit) override;
    Task<Result<LogPlace>> log_place(Caller caller, std::string id, std::int32_t rank) override;
    Json cluster() override;
    // node_queries.cpp
    Task<Result<std::string>> nodes(Caller caller, NodeQuery query) override;
    Task<Result<std::string>> node(Caller caller, std::string name) override;
    std::shared_ptr<void> subscribe(Sink sink) override;
    // step_stream.cpp
    std::shared_ptr<void> follow(const Caller& caller, const std::string& topic) override;
    Task<Result<std::vector<StreamMessage>>> replay(std::int64_t after, std::size_t limit) override;
    std::int64_t last_seq() const override;
    // metrics_queries.cpp
    MetricsBody metrics(const Caller& caller, std::string_view accept) override;
    MetricsBody own_metrics(std::string_view accept) override;
    Result<MetricsBody> job_metrics(const Caller& caller, std::string_view id,
                                    telemetry::Shard shard, std::string_view accept) override;
    std::vector<ScrapeTarget> scrape_targets(const Caller& caller) override;
    // The series of all jobs, their ranks and GPUs as Prometheus text 0.0.4.
    std::string series_text();
    Task<Status> ready() override;
    AgentGate& agents() override { return *this; }

    // AgentGate
    Result<std::shared_ptr<AgentSession>> open(const std::string& ticket_sha256,
                                               std::shared_ptr<AgentPeer> peer,
                                               std::string remote) override;

  private:
    // Hands a command to its job and waits until it is durable; the job's JSON.
    template <class Input>
    Task<Result<std::string>> command(std::shared_ptr<JobActor> actor, Input input);
    using ActorPtr = std::shared_ptr<JobActor>;
    Status may_go(const std::string& id) const;
    bool snapshot_in_use(const std::string& snapshot) const;  // by a job that is not over
    Task<Status> remove_over(JobId job, bool checkpoints);
    // submission.cpp
    Status check_rendered(const std::string& user, const SubmitRequest& request,
                          const std::vector<std::string>& warnings) const;
    // What a submission stores, and what it becomes once it is stored.
    struct NewJobs {
        SubmitWrite write;
        std::vector<Event> events;
        std::vector<Job> jobs;
        std::string signature;                    // "" = none was asked for
        std::vector<StreamMessage> messages;      // of a sweep's events, if somebody listens
        std::shared_ptr<const std::string> view;  // of the first
    };
    Task<Result<Submitted>> answer_again(Caller caller, SubmitDone before);
    Task<Result<std::optional<Submitted>>> stored_before(const Caller& caller,
                                                         const SubmitRequest& request);
    Task<Result<NewJobs>> make_jobs(const Caller& caller, const SubmitRequest& request);
    static event::Submitted submitted_event(const Caller& caller, const SubmitRequest& request,
                                            const std::string& signature, std::size_t index);
    Task<Result<std::string>> take_signature(std::string user, const SubmitRequest& request);
    void forget_signature(const std::string& user, const std::string& name) const;
    std::filesystem::path runs_of(const std::string& user) const;
    // Gives the events their numbers.
    void number(NewJobs& made);
    struct OnNode {
        std::vector<std::string> jobs;  // that the caller may see
        bool well = false;              // ranks run there, and its agent is heard
    };
    std::map<std::string, OnNode> jobs_on_nodes(const Caller& caller) const;
    // How the jobs stand that one is to run after; true at the moment it returns.
    struct After {
        std::set<std::string> waiting;  // not over
        std::string failed;             // one that did not succeed; "" = none
    };
    Task<Result<After>> look_at_after(std::vector<std::string> ids);
    Task<Status> check_after(Caller caller, std::vector<std::string> ids);
    static WaitingLine::Entry entry(const Job& job, std::set<std::string> after);
    Task<Status> stand_in_line(std::vector<ActorPtr> actors);
    // What a body of metrics borrows from while it is written.
    struct Exposed {
        telemetry::MetricsView view;
        std::vector<telemetry::JobMetricsView> active;
        std::vector<std::vector<telemetry::RankMetricsView>> ranks;
    };
    void expose_totals(Exposed& out) const;
    void expose_job(Exposed& out, const ActorPtr& actor) const;
    void expose_all(Exposed& out) const;
    void expose_for(const Caller& caller, Exposed& out) const;
    void count_what_is_here() const;
    ActorPtr make_actor(Job job);
    JobHooks hooks();
    void admit_next();
    void move_on(const std::string& id, bool succeeded);
    void forget_retired();
    void forget_left();
    void on_events(JobActor& actor, const std::vector<Event>& events);
    void count_rendezvous(const Job& job, const Event& event);
    void on_finished(JobActor& actor);
    void publish_ranks(JobActor& actor, bool now);
    // Steps that are complete and that somebody follows.
    void publish_steps(const std::string& id);
    Task<Status> restore(JobId id);

    // Until it is let go; nullptr: there are `most`.
    std::shared_ptr<void> place_of_caller(const std::string& ticket_sha256, std::size_t most);
    std::filesystem::path ticket_folder(const Job& job) const;
    Task<Result<const telemetry::JobSeries*>> load_series(const Job& job);
    // series_bands.cpp: the series question with stats or worst, when history is ready.
    Task<Result<std::string>> bands(std::shared_ptr<const Job> job, SeriesQuery query);
    // gpu_queries.cpp: the questions of GPUs, when history is ready.
    Task<Result<std::string>> gpu_series(std::string id, SeriesQuery query);
    Task<Result<std::string>> gpu_heatmap(std::string id, HeatmapQuery query);
    Task<Result<std::string>> gpu_samples(std::string id, telemetry::SampleAsk ask,
                                          SamplesQuery query);
    // Whether chunks alone answer questions about the job; if not, its series are in memory now, as
    // far as there are any.
    Task<Result<bool>> ready_history(const Job& job);
    std::string ranks_text(const Job& job, const telemetry::JobSeries* series,
                           const JobActor* actor, const RanksQuery& query) const;

    ControlContext& context_;
    JobRegistry registry_{context_};
    HistoryKeeper history_;
    Retention retention_;
    Notifier notifier_;
    telemetry::RendezvousMetrics rendezvous_metrics_{context_.metrics};
    Ingest ingest_;
    std::unordered_map<std::string, std::pair<ActorPtr, std::int32_t>> tickets_;  // hash → attempt
    // By the same hash: connections whose HELLO is not accepted. They may end after this has gone.
    using Callers = std::unordered_map<std::string, std::size_t>;
    std::shared_ptr<Callers> callers_ = std::make_shared<Callers>();
    // Tickets of jobs that are over, oldest first: their agents may still be on their way out.
    std::deque<std::pair<std::chrono::steady_clock::time_point, std::string>> retired_;
    WaitingLine line_;                 // accepted
    std::vector<std::string> loaded_;  // to be taken up by begin()
    std::vector<JobId> ended_lately_;  // their agents may still be there
    // Jobs whose targets Prometheus may still have, oldest first.
    struct Left {
        std::string id;
        std::string user;
        std::chrono::steady_clock::time_point at;
    };
    std::deque<Left> left_;
    std::map<std::string, After> loaded_after_;  // of these, those with `after`
    UserQuotas quotas_;
    HandOverWindow window_;                                    // those with the scheduler
    std::set<std::pair<std::string, std::string>> in_flight_;  // (user, idempotency key)
    std::list<std::string> series_ages_;  // finished jobs whose series are here
    std::map<std::string, std::chrono::steady_clock::time_point> published_;
    bool stopping_ = false;
    // Who follows what; whoever leaves may do so after this has gone.
    struct Followed {
        std::map<std::string, std::size_t> topics;  // → how many
        // job → metric → when its last step was published
        std::map<std::string, std::map<std::string, std::chrono::steady_clock::time_point>> steps;
        void leave(const std::string& topic);
    };
    std::shared_ptr<Followed> followed_ = std::make_shared<Followed>();
    net::steady_timer steps_timer_{context_.io};
    bool steps_armed_ = false;
};

}  // namespace lockstep
