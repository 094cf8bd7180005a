// Control for real: the parts of control, who makes them, begins them and stops them, and which of
// them answers what is asked (daemon/README.md, "The parts of control"). Decides nothing itself.
// Control thread only. Everything given to it outlives it.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"
#include "daemon/control/history/history_keeper.hpp"
#include "daemon/control/history/ingest.hpp"
#include "daemon/control/jobs/job_admission.hpp"
#include "daemon/control/jobs/job_commands.hpp"
#include "daemon/control/jobs/job_lifecycle.hpp"
#include "daemon/control/jobs/job_removal.hpp"
#include "daemon/control/jobs/jobs_at_start.hpp"
#include "daemon/control/jobs/submissions.hpp"
#include "daemon/control/jobs/ticket_gate.hpp"
#include "daemon/control/notices/notifier.hpp"
#include "daemon/control/queries/cluster_queries.hpp"
#include "daemon/control/queries/job_queries.hpp"
#include "daemon/control/queries/metrics_queries.hpp"
#include "daemon/control/queries/series_cache.hpp"
#include "daemon/control/queries/series_queries.hpp"
#include "daemon/control/queries/stream_hub.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class ControlService final : public Control {
  public:
    explicit ControlService(ControlContext& context);

    // Loads what is unfinished; before the listeners open. An error means that the store cannot be
    // read: do not start.
    Task<Status> load_jobs();
    // Takes it up again; once the listeners are open and the agents' URL is known.
    // `page_url`: of the API and the page, for links in notices; "" = they have none.
    void begin(AgentsListener agents, const std::string& page_url = "");
    Task<void> serve_agents_as(AgentsListener agents);  // see TicketGate::serve_as()
    // Stops every coroutine; jobs and agents go on without the daemon.
    Task<void> stop();
    Task<Result<UnixMillis>> end_of(JobId job, std::int32_t attempt);  // see Scheduler::EndOf
    // The scheduler has news of an attempt; a hint, control polls anyway.
    void scheduler_changed(const JobId& job);
    // See MetricsQueries.
    telemetry::MetricSamples samples() const;

    using Text = std::string;
    using SharedText = std::shared_ptr<const std::string>;
    Task<SubmitResult<Submitted>> submit(Caller caller, SubmitRequest request) override;
    Result<Json> render(const Caller& caller, const JobSpec& spec) override;
    Task<Json> start_estimate(JobSpec spec) override;
    Result<SharedText> show_now(const Caller& caller, std::string_view id) override;
    Task<Result<SharedText>> show(Caller caller, std::string id) override;
    Task<Result<Text>> list(Caller caller, JobQuery query) override;
    Task<Result<Text>> profiles(Caller caller, std::string id, CapturesQuery query) override;
    Task<Result<EvidencePlace>> profile_place(Caller caller, std::string id,
                                              EvidenceQuery query) override;
    Task<Result<Text>> remove(Caller caller, std::string id, bool keep_checkpoints) override;
    Task<Result<DiskPlace>> disk(Caller caller, std::string id) override;
    Task<Result<Text>> spec(Caller caller, std::string id) override;
    Task<Result<Text>> script(Caller caller, std::string id) override;
    Task<Result<Text>> events(Caller caller, std::string id, EventsQuery query) override;
    Task<Result<Text>> ranks(Caller caller, std::string id, RanksQuery query) override;
    Task<Result<Text>> job_nodes(Caller caller, std::string id) override;
    Task<Result<Text>> series(Caller caller, std::string id, SeriesQuery query) override;
    Task<Result<Text>> heatmap(Caller caller, std::string id, HeatmapQuery query) override;
    Task<Result<Text>> samples(Caller caller, std::string id, SamplesQuery query) override;
    Task<Result<Text>> metric_names(Caller caller, std::string id) override;
    Task<Result<Text>> gpus(Caller caller, std::string id, std::size_t offset,
                            std::size_t limit) override;
    Task<Result<LogPlace>> log_place(Caller caller, std::string id, std::int32_t rank,
                                     std::int32_t attempt) override;
    Task<Result<Text>> evidence(Caller caller, std::string id, CapturesQuery query) override;
    Task<Result<EvidencePlace>> evidence_place(Caller caller, std::string id,
                                               EvidenceQuery query) override;
    Json cluster() override;
    Task<Result<Text>> nodes(Caller caller, NodeQuery query) override;
    Task<Result<Text>> node(Caller caller, std::string name) override;
    Task<Status> ready() override;
    Commands& commands() override;
    JobStream& stream() override;
    MetricsExposition& exposition() override;
    AgentGate& agents() override;

  private:
    ControlContext& context_;
    JobRegistry registry_;
    HistoryKeeper history_;
    Notifier notifier_;
    Ingest ingest_;  // calls lifecycle_, once agents are let in
    TicketGate gate_;
    StreamHub streams_;
    SeriesCache cache_;
    MetricsQueries metrics_;
    JobAdmission admission_;
    JobLifecycle lifecycle_;
    JobsAtStart start_;
    Submissions submissions_;
    JobCommands commands_;
    JobRemoval removal_;
    JobQueries jobs_;
    SeriesQueries series_;
    ClusterQueries cluster_;
};

}  // namespace lockstep
