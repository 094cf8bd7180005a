// What becomes of a job, from the moment that it is stored: makes the actors of unfinished jobs and
// tells each part of control what concerns it (events, an attempt, telemetry, the end, the
// removal). Holds no jobs itself; the registry does. Control thread only; outlives the actors.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/history/history_keeper.hpp"
#include "daemon/control/history/ingest.hpp"
#include "daemon/control/jobs/job_admission.hpp"
#include "daemon/control/jobs/ticket_gate.hpp"
#include "daemon/control/notices/notifier.hpp"
#include "daemon/control/queries/metrics_queries.hpp"
#include "daemon/control/queries/series_cache.hpp"
#include "daemon/control/queries/stream_hub.hpp"
#include "daemon/telemetry/exposition/rendezvous_metrics.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"

#include <string>
#include <vector>

namespace lockstep {

struct JobHooks;

class JobLifecycle {
  public:
    JobLifecycle(ControlContext& context, JobRegistry& registry, JobAdmission& admission,
                 TicketGate& gate, StreamHub& streams, SeriesCache& series, HistoryKeeper& history,
                 MetricsQueries& metrics, Notifier& notifier, Ingest& ingest);

    // A stored job that is not over has an actor from now on; it waits to be started.
    JobRegistry::ActorPtr begin(Job job);
    // The job's series have new rows.
    void reported(JobActor& actor);
    // The job, which was over in this state, is none any more.
    void removed(const std::string& id, const std::string& user, JobState state);
    // The scheduler has news of an attempt; a hint, its actor polls anyway.
    void scheduler_changed(const JobId& job);
    // Ends every actor's coroutine soon; jobs and their agents go on without the daemon.
    void stop();
    // Lets go of the agents, which hold the actors; once no coroutine of an actor runs.
    void forget_agents();

  private:
    JobHooks hooks();
    void on_events(JobActor& actor, const std::vector<Event>& events);
    void on_finished(JobActor& actor);
    void count_rendezvous(const Job& job, const Event& event);

    ControlContext& context_;
    JobRegistry& registry_;
    JobAdmission& admission_;
    TicketGate& gate_;
    StreamHub& streams_;
    SeriesCache& series_;
    HistoryKeeper& history_;
    MetricsQueries& metrics_;
    Notifier& notifier_;
    Ingest& ingest_;
    telemetry::RendezvousMetrics rendezvous_metrics_{context_.metrics};
};

}  // namespace lockstep
