// Control for real: owns the unfinished jobs, admits them to the scheduler in turn, lets agents
// in, answers queries. Control thread only. Everything given to it outlives it.
#pragma once

#include "daemon/control/context.hpp"
#include "daemon/control/control.hpp"
#include "daemon/control/history_keeper.hpp"
#include "daemon/control/ingest.hpp"
#include "daemon/control/job_admission.hpp"
#include "daemon/control/job_commands.hpp"
#include "daemon/control/job_lifecycle.hpp"
#include "daemon/control/job_registry.hpp"
#include "daemon/control/job_removal.hpp"
#include "daemon/control/jobs_at_start.hpp"
#include "daemon/control/metrics_queries.hpp"
#include "daemon/control/notifier.hpp"
#include "daemon/control/series_cache.hpp"
#include "daemon/control/stream_hub.hpp"
#include "daemon/control/submissions.hpp"
#include "daemon/control/ticket_gate.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class ControlService final : public Control {
  public:
    explicit ControlService(ControlContext& context);
    ~ControlService() override;

    // Loads what is unfinished; before the listeners open. An error means that the store cannot be
    // read: do not start.
    Task<Status> load_jobs() { return start_.load(); }
    // Takes it up again; once the listeners are open and the agents' URL is known.
    // `page_url`: of the API and the page, for links in notices; "" = they have none.
    void begin(AgentsListener agents, const std::string& page_url = "");
    // Agents are listened for in another way (a renewed certificate): from now on attempts are told
    // so, and those that are under way before this returns.
    Task<void> serve_agents_as(AgentsListener agents) { return gate_.serve_as(std::move(agents)); }
    // Stops every coroutine; jobs and agents go on without the daemon.
    Task<void> stop();
    // When an attempt ended; see Scheduler::EndOf.
    Task<Result<UnixMillis>> end_of(JobId job, std::int32_t attempt) {
        return registry_.end_of(std::move(job), attempt);
    }
    // The scheduler has news of an attempt; a hint, control polls anyway.
    void scheduler_changed(const JobId& job) { lifecycle_.scheduler_changed(job); }

    Task<Result<Submitted>> submit(Caller caller, SubmitRequest request) override {
        return submissions_.submit(std::move(caller), std::move(request));
    }
    Result<Json> render(const Caller& caller, const JobSpec& spec) override {
        return submissions_.render(caller, spec);
    }
    Task<Json> start_estimate(JobSpec spec) override {
        return submissions_.start_estimate(std::move(spec));
    }
    Result<std::shared_ptr<const std::string>> show_now(const Caller& caller,
                                                        std::string_view id) override {
        return registry_.show_now(caller, id);
    }
    Task<Result<std::shared_ptr<const std::string>>> show(Caller caller, std::string id) override {
        return registry_.show(std::move(caller), std::move(id));
    }
    Task<Result<std::string>> list(Caller caller, JobQuery query) override;
    Task<Result<std::string>> cancel(Caller caller, std::string id) override {
        return commands_.cancel(std::move(caller), std::move(id));
    }
    Task<Result<std::string>> restart(Caller caller, std::string id) override {
        return commands_.restart(std::move(caller), std::move(id));
    }
    Task<Result<std::string>> checkpoint(Caller caller, std::string id) override {
        return commands_.checkpoint(std::move(caller), std::move(id));
    }
    // evidence_queries.cpp
    Task<Result<std::string>> evidence(Caller caller, std::string id, std::size_t limit) override;
    Task<Result<EvidencePlace>> evidence_place(Caller caller, std::string id,
                                               EvidenceQuery query) override;
    Task<Result<std::string>> take_evidence(Caller caller, std::string id) override {
        return commands_.take_evidence(std::move(caller), std::move(id));
    }
    Task<Result<std::string>> cancel_sweep(Caller caller, std::string id) override {
        return commands_.cancel_sweep(std::move(caller), std::move(id));
    }
    Task<Result<std::string>> remove(Caller caller, std::string id,
                                     bool keep_checkpoints) override {
        return removal_.remove(std::move(caller), std::move(id), keep_checkpoints);
    }
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
    std::shared_ptr<void> subscribe(Sink sink) override {
        return streams_.subscribe(std::move(sink));
    }
    std::shared_ptr<void> follow(const Caller& caller, const std::string& topic) override {
        return streams_.follow(caller, topic);
    }
    Task<Result<std::vector<StreamMessage>>> replay(std::int64_t after,
                                                    std::size_t limit) override {
        return streams_.replay(after, limit);
    }
    std::int64_t last_seq() const override { return streams_.last_seq(); }
    MetricsBody metrics(const Caller& caller, std::string_view accept) override {
        return metrics_.metrics(caller, accept);
    }
    MetricsBody own_metrics(std::string_view accept) override {
        return metrics_.own_metrics(accept);
    }
    Result<MetricsBody> job_metrics(const Caller& caller, std::string_view id,
                                    telemetry::Shard shard, std::string_view accept) override {
        return metrics_.job_metrics(caller, id, shard, accept);
    }
    std::vector<ScrapeTarget> scrape_targets(const Caller& caller) override {
        return metrics_.scrape_targets(caller);
    }
    // The series of all jobs, their ranks and GPUs as Prometheus text 0.0.4.
    std::string series_text() const { return metrics_.series_text(); }
    Task<Status> ready() override;
    AgentGate& agents() override { return gate_; }

  private:
    struct OnNode {
        std::vector<std::string> jobs;  // that the caller may see
        bool well = false;              // ranks run there, and its agent is heard
    };
    std::map<std::string, OnNode> jobs_on_nodes(const Caller& caller) const;
    // series_bands.cpp: the series question with stats or worst, when history is ready.
    Task<Result<std::string>> bands(std::shared_ptr<const Job> job, SeriesQuery query);
    // gpu_queries.cpp: the questions of GPUs, when history is ready.
    Task<Result<std::string>> gpu_series(std::string id, SeriesQuery query);
    Task<Result<std::string>> gpu_heatmap(std::string id, HeatmapQuery query);
    Task<Result<std::string>> gpu_samples(std::string id, telemetry::SampleAsk ask,
                                          SamplesQuery query);

    ControlContext& context_;
    JobRegistry registry_;
    HistoryKeeper history_;
    Notifier notifier_;
    Ingest ingest_;
    TicketGate gate_;
    StreamHub streams_;
    SeriesCache series_;
    MetricsQueries metrics_;
    JobAdmission admission_;
    JobLifecycle lifecycle_;
    JobsAtStart start_;
    Submissions submissions_;
    JobCommands commands_;
    JobRemoval removal_;
};

}  // namespace lockstep
