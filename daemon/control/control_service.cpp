#include "daemon/control/control_service.hpp"

#include <utility>

namespace lockstep {

ControlService::ControlService(ControlContext& context)
    : context_(context),
      registry_(context),
      history_(context),
      notifier_(context),
      ingest_(context, [this](JobActor& actor) { lifecycle_.reported(actor); }),
      gate_(context, registry_, ingest_),
      streams_(context, registry_),
      cache_(context, history_),
      metrics_(context, registry_),
      admission_(context, registry_),
      lifecycle_(context, registry_, admission_, gate_, streams_, cache_, history_, metrics_,
                 notifier_, ingest_),
      start_(context, registry_, lifecycle_, admission_, gate_, history_),
      submissions_(context, registry_, admission_, lifecycle_),
      commands_(context, registry_),
      removal_(context, registry_, gate_, lifecycle_),
      jobs_(context, registry_),
      series_(context, registry_, cache_, history_),
      cluster_(context, registry_) {}

void ControlService::begin(AgentsListener agents, const std::string& page_url) {
    context_.settings.agents = std::move(agents);
    history_.begin();
    removal_.begin();
    notifier_.begin(page_url);
    start_.take_up();
}

Task<void> ControlService::stop() {
    gate_.close();
    admission_.halt();
    ingest_.stop();
    history_.halt();
    removal_.halt();
    notifier_.halt();
    lifecycle_.stop();
    context_.stops = true;
    context_.attempt_files.let_go();
    co_await context_.tasks.join();
    lifecycle_.forget_agents();
    context_.files.join();
    history_.stop();
}

Task<Status> ControlService::load_jobs() {
    return start_.load();
}

Task<void> ControlService::serve_agents_as(AgentsListener agents) {
    return gate_.serve_as(std::move(agents));
}

Task<Result<UnixMillis>> ControlService::end_of(JobId job, std::int32_t attempt) {
    return registry_.end_of(std::move(job), attempt);
}

void ControlService::scheduler_changed(const JobId& job) {
    lifecycle_.scheduler_changed(job);
}

telemetry::MetricSamples ControlService::samples() const {
    return metrics_.samples();
}

Task<SubmitResult<Submitted>> ControlService::submit(Caller caller, SubmitRequest request) {
    return submissions_.submit(std::move(caller), std::move(request));
}

Result<Json> ControlService::render(const Caller& caller, const JobSpec& spec) {
    return submissions_.render(caller, spec);
}

Task<Json> ControlService::start_estimate(JobSpec spec) {
    return submissions_.start_estimate(std::move(spec));
}

Result<std::shared_ptr<const std::string>> ControlService::show_now(const Caller& caller,
                                                                    std::string_view id) {
    return registry_.show_now(caller, id);
}

Task<Result<std::shared_ptr<const std::string>>> ControlService::show(Caller caller,
                                                                      std::string id) {
    return registry_.show(std::move(caller), std::move(id));
}

Task<Result<std::string>> ControlService::list(Caller caller, JobQuery query) {
    return jobs_.list(std::move(caller), std::move(query));
}

Task<Result<std::string>> ControlService::profiles(Caller caller, std::string id,
                                                   CapturesQuery query) {
    return jobs_.profiles(std::move(caller), std::move(id), query);
}

Task<Result<EvidencePlace>> ControlService::profile_place(Caller caller, std::string id,
                                                          EvidenceQuery query) {
    return jobs_.profile_place(std::move(caller), std::move(id), std::move(query));
}

Task<Result<std::string>> ControlService::remove(Caller caller, std::string id,
                                                 bool keep_checkpoints) {
    return removal_.remove(std::move(caller), std::move(id), keep_checkpoints);
}

Task<Result<DiskPlace>> ControlService::disk(Caller caller, std::string id) {
    return jobs_.disk(std::move(caller), std::move(id));
}

Task<Result<std::string>> ControlService::spec(Caller caller, std::string id) {
    return jobs_.spec(std::move(caller), std::move(id));
}

Task<Result<std::string>> ControlService::script(Caller caller, std::string id) {
    return jobs_.script(std::move(caller), std::move(id));
}

Task<Result<std::string>> ControlService::events(Caller caller, std::string id, EventsQuery query) {
    return jobs_.events(std::move(caller), std::move(id), query);
}

Task<Result<std::string>> ControlService::ranks(Caller caller, std::string id, RanksQuery query) {
    return series_.ranks(std::move(caller), std::move(id), std::move(query));
}

Task<Result<std::string>> ControlService::job_nodes(Caller caller, std::string id) {
    return jobs_.job_nodes(std::move(caller), std::move(id));
}

Task<Result<std::string>> ControlService::series(Caller caller, std::string id, SeriesQuery query) {
    return series_.series(std::move(caller), std::move(id), std::move(query));
}

Task<Result<std::string>> ControlService::heatmap(Caller caller, std::string id,
                                                  HeatmapQuery query) {
    return series_.heatmap(std::move(caller), std::move(id), std::move(query));
}

Task<Result<std::string>> ControlService::samples(Caller caller, std::string id,
                                                  SamplesQuery query) {
    return series_.samples(std::move(caller), std::move(id), std::move(query));
}

Task<Result<std::string>> ControlService::metric_names(Caller caller, std::string id) {
    return series_.metric_names(std::move(caller), std::move(id));
}

Task<Result<std::string>> ControlService::gpus(Caller caller, std::string id, std::size_t offset,
                                               std::size_t limit) {
    return series_.gpus(std::move(caller), std::move(id), offset, limit);
}

Task<Result<LogPlace>> ControlService::log_place(Caller caller, std::string id, std::int32_t rank,
                                                 std::int32_t attempt) {
    return jobs_.log_place(std::move(caller), std::move(id), rank, attempt);
}

Task<Result<std::string>> ControlService::evidence(Caller caller, std::string id,
                                                   CapturesQuery query) {
    return jobs_.evidence(std::move(caller), std::move(id), query);
}

Task<Result<EvidencePlace>> ControlService::evidence_place(Caller caller, std::string id,
                                                           EvidenceQuery query) {
    return jobs_.evidence_place(std::move(caller), std::move(id), std::move(query));
}

Json ControlService::cluster() {
    return cluster_.cluster();
}

Task<Result<std::string>> ControlService::nodes(Caller caller, NodeQuery query) {
    return cluster_.nodes(std::move(caller), std::move(query));
}

Task<Result<std::string>> ControlService::node(Caller caller, std::string name) {
    return cluster_.node(std::move(caller), std::move(name));
}

Task<Status> ControlService::ready() {
    return cluster_.ready();
}

Commands& ControlService::commands() {
    return commands_;
}

JobStream& ControlService::stream() {
    return streams_;
}

MetricsExposition& ControlService::exposition() {
    return metrics_;
}

AgentGate& ControlService::agents() {
    return gate_;
}

}  // namespace lockstep
