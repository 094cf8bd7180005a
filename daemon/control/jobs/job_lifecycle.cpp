#include "daemon/control/jobs/job_lifecycle.hpp"

#include "daemon/control/actor/job_actor.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

namespace lockstep {

JobLifecycle::JobLifecycle(ControlContext& context, JobRegistry& registry, JobAdmission& admission,
                           TicketGate& gate, StreamHub& streams, SeriesCache& series,
                           HistoryKeeper& history, MetricsQueries& metrics, Notifier& notifier,
                           Ingest& ingest)
    : context_(context),
      registry_(registry),
      admission_(admission),
      gate_(gate),
      streams_(streams),
      series_(series),
      history_(history),
      metrics_(metrics),
      notifier_(notifier),
      ingest_(ingest) {}

JobHooks JobLifecycle::hooks() {
    JobHooks out;
    out.on_events = [this](JobActor& actor, const std::vector<Event>& events) {
        on_events(actor, events);
    };
    out.on_attempt = [this](JobActor& actor) { gate_.admit(actor); };
    out.on_finished = [this](JobActor& actor) { on_finished(actor); };
    out.on_aside = [this](JobActor& actor) { admission_.set_aside(actor); };
    out.notices_of = [this](const Job& job, const std::vector<Event>& events) {
        return notifier_.owed(job, events);
    };
    out.on_notices = [this](OwedNotices owed) { notifier_.stored(std::move(owed)); };
    out.flush_telemetry = [this]() -> Task<void> { return ingest_.flush(); };
    return out;
}

JobRegistry::ActorPtr JobLifecycle::begin(Job job) {
    auto actor = std::make_shared<JobActor>(context_, hooks(), std::move(job));
    registry_.add(actor);
    admission_.begin(actor->job());
    return actor;
}

void JobLifecycle::on_events(JobActor& actor, const std::vector<Event>& events) {
    for (const Event& event : events) {
        count_rendezvous(actor.job(), event);
    }
    streams_.publish(actor.job().user, events);
}

void JobLifecycle::count_rendezvous(const Job& job, const Event& event) {
    const Generation* generation = job.generation();
    if (std::holds_alternative<event::RanksStarted>(event.data) && generation != nullptr) {
        const auto& all = job.attempt()->generations;
        const UnixMillis began =
            all.size() > 1 ? all[all.size() - 2].finished_at : job.attempt()->placed_at;
        rendezvous_metrics_.completed(
            static_cast<double>(std::max<UnixMillis>(event.time - began, 0)) / 1000.0);
    } else if (const auto* ended = std::get_if<event::GenerationEnded>(&event.data);
               ended != nullptr && generation != nullptr) {
        // The newest one may have begun in the same append.
        const auto& all = job.attempt()->generations;
        const bool never_ran = std::any_of(all.begin(), all.end(), [&](const Generation& one) {
            return one.number == ended->generation && one.running_at == 0;
        });
        if (never_ran) {
            rendezvous_metrics_.ended(telemetry::RendezvousResult::failed);
        }
    } else if (const auto* fault = std::get_if<event::FaultSeen>(&event.data);
               fault != nullptr && fault->cause_class == CauseClass::rendezvous_timeout) {
        rendezvous_metrics_.ended(telemetry::RendezvousResult::timed_out);
    }
}

void JobLifecycle::reported(JobActor& actor) {
    const std::string& id = actor.job().id.value;
    if (is_final(actor.job().state)) {
        history_.finish(id);
        return;
    }
    streams_.reported(actor);
    history_.look(id);
}

void JobLifecycle::on_finished(JobActor& actor) {
    const JobRegistry::ActorPtr keep = actor.shared_from_this();
    const Job& job = actor.job();
    streams_.finish(actor);
    registry_.finish(actor);
    gate_.retire(job);
    metrics_.finish(job);
    series_.finish(job.id.value);
    admission_.finish(job);
}

void JobLifecycle::removed(const std::string& id, const std::string& user, JobState state) {
    registry_.remove(id, state);
    context_.stored.removed(id);
    series_.forget(id);
    metrics_.forget(id);
    gate_.forget(id);
    streams_.removed(id, user);
}

void JobLifecycle::scheduler_changed(const JobId& job) {
    if (const JobRegistry::ActorPtr actor = registry_.find(job.value); actor && actor->started()) {
        actor->post(LookInput{});
    }
}

void JobLifecycle::stop() {
    for (const auto& [id, actor] : registry_.unfinished()) {
        actor->stop();
    }
    for (const auto& [id, actor] : registry_.unfinished()) {
        actor->close_agents("the daemon is stopping");
    }
}

void JobLifecycle::forget_agents() {
    for (const auto& [id, actor] : registry_.unfinished()) {
        actor->forget_agents();
    }
    gate_.forget_agents();
}

}  // namespace lockstep
