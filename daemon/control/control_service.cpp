#include "daemon/control/control_service.hpp"

#include "daemon/control/attempt_files.hpp"
#include "daemon/control/job_actor.hpp"
#include "daemon/control/job_metrics.hpp"
#include "job/async/on_thread.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// An agent that was away when its job ended may come back this much later and deliver the rest.
constexpr auto kTicketPatience = std::chrono::seconds{60};

}  // namespace

ControlService::ControlService(ControlContext& context)
    : context_(context),
      history_(context),
      retention_(
          context, [this](JobId job) { return remove_over(std::move(job), true); },
          [this](const std::string& snapshot) { return snapshot_in_use(snapshot); }),
      notifier_(context),
      ingest_(context, [this](JobActor& actor) {
          if (is_final(actor.job().state)) {
              history_.finish(actor.job().id.value);
              return;
          }
          publish_ranks(actor, false);
          publish_steps(actor.job().id.value);
          history_.look(actor.job().id.value);
      }) {}

ControlService::~ControlService() = default;

JobHooks ControlService::hooks() {
    JobHooks out;
    out.on_events = [this](JobActor& actor, const std::vector<Event>& events) {
        on_events(actor, events);
    };
    out.on_attempt = [this](JobActor& actor) {
        const Attempt& attempt = *actor.job().attempt();
        tickets_[attempt.ticket_hash] = {actor.shared_from_this(), attempt.number};
    };
    out.on_finished = [this](JobActor& actor) { on_finished(actor); };
    out.on_aside = [this](JobActor& actor) {
        window_.set_aside(actor.job().id.value, actor.aside());
        net::post(context_.io, [this] { admit_next(); });
    };
    out.notices_of = [this](const Job& job, const std::vector<Event>& events) {
        return notifier_.rows_of(job, events);
    };
    out.on_notices = [this] { notifier_.wake(); };
    out.flush_telemetry = [this]() -> Task<void> { return ingest_.flush(); };
    return out;
}

ControlService::ActorPtr ControlService::make_actor(Job job) {
    auto actor = std::make_shared<JobActor>(context_, hooks(), std::move(job));
    registry_.add(actor);
    quotas_.begun(actor->job().user);
    return actor;
}

// Hands jobs to the scheduler as the line has them and the window takes them.
void ControlService::admit_next() {
    window_.set_size(context_.settings.window);
    const auto may = [this](const std::string& user) { return window_.takes(user); };
    while (!stopping_) {
        const std::string id = line_.take_next(may);
        if (id.empty()) {
            break;
        }
        if (const ActorPtr actor = registry_.find(id)) {
            window_.enter(id, actor->job().user);
            actor->set_pending_reason("");
            actor->start();
        }
    }
}

void ControlService::move_on(const std::string& id, bool succeeded) {
    const WaitingLine::Settled settled = line_.finished(id, succeeded);
    for (const std::string& ready : settled.ready) {
        if (const ActorPtr actor = registry_.find(ready)) {
            actor->set_pending_reason("");
        }
    }
    for (const auto& [waiting, why] : settled.waiting) {
        if (const ActorPtr actor = registry_.find(waiting)) {
            actor->set_pending_reason(why);
        }
    }
    for (const std::string& failed : settled.failed) {
        if (const ActorPtr actor = registry_.find(failed)) {
            actor->post(DependencyInput{id});
        }
    }
}

void ControlService::on_events(JobActor& actor, const std::vector<Event>& events) {
    for (const Event& event : events) {
        count_rendezvous(actor.job(), event);
    }
    if (context_.bus.has_subscribers()) {
        for (const Event& event : events) {
            context_.bus.publish(stream_message(event, actor.job().user));
        }
    }
}

void ControlService::count_rendezvous(const Job& job, const Event& event) {
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
               fault != nullptr &&
               fault->cause_class == to_string(CauseClass::rendezvous_timeout)) {
        rendezvous_metrics_.ended(telemetry::RendezvousResult::timed_out);
    }
}

void ControlService::on_finished(JobActor& actor) {
    const Job& job = actor.job();
    const ActorPtr keep = actor.shared_from_this();
    publish_ranks(actor, true);
    publish_steps(job.id.value);
    registry_.finish(actor);
    for (const auto& attempt : job.attempts) {
        retired_.emplace_back(context_.clock.steady() + kTicketPatience, attempt.ticket_hash);
    }
    forget_retired();
    forget_left();
    left_.push_back({job.id.value, job.user, context_.clock.steady()});
    published_.erase(job.id.value);
    history_.finish(job.id.value);
    if (context_.series.find(job.id.value) != nullptr) {
        series_ages_.push_front(job.id.value);
        while (series_ages_.size() > limits::kSeriesJobsCached) {
            context_.series.erase(series_ages_.back());
            series_ages_.pop_back();
        }
    }
    quotas_.ended(job.user);
    window_.leave(job.id.value);
    move_on(job.id.value, job.state == JobState::succeeded);
    net::post(context_.io, [this] { admit_next(); });
}

void ControlService::forget_retired() {
    const auto now = context_.clock.steady();
    while (!retired_.empty() && retired_.front().first <= now) {
        tickets_.erase(retired_.front().second);
        retired_.pop_front();
    }
}

Task<void> ControlService::stop() {
    stopping_ = true;
    ingest_.stop();
    history_.halt();
    retention_.halt();
    notifier_.halt();
    for (const auto& [id, actor] : registry_.unfinished()) {
        actor->stop();
    }
    for (const auto& [id, actor] : registry_.unfinished()) {
        actor->close_agents("the daemon is stopping");
    }
    co_await context_.tasks.join();
    for (const auto& [id, actor] : registry_.unfinished()) {
        actor->forget_agents();
    }
    for (const auto& [hash, ticket] : tickets_) {
        ticket.first->forget_agents();
    }
    tickets_.clear();
    context_.files.join();
    history_.stop();
}

void ControlService::scheduler_changed(const JobId& job) {
    if (const ActorPtr actor = registry_.find(job.value); actor && actor->started()) {
        actor->post(LookInput{});
    }
}

template <class Input>
Task<Result<std::string>> ControlService::command(std::shared_ptr<JobActor> actor, Input input) {
    const auto wait = [this, actor, &input](auto handler) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        input.done = [this, shared](Status status) {
            net::post(context_.io,
                      [shared, status = std::move(status)] { (*shared)(std::move(status)); });
        };
        actor->post(std::move(input));
    };
    auto token = net::use_awaitable;
    const Status done =
        co_await net::async_initiate<decltype(token), void(Status)>(std::move(wait), token);
    if (!done) {
        co_return fail(done.error());
    }
    co_return *actor->view();
}

Task<Result<std::string>> ControlService::cancel(Caller caller, std::string id) {
    const auto actor = co_await registry_.commanded(caller, id);
    if (!actor) {
        co_return fail(actor.error());
    }
    if (!*actor) {
        // Over already: cancelling twice is not an error.
        const auto shown = co_await registry_.show(caller, id);
        if (!shown) {
            co_return fail(shown.error());
        }
        co_return **shown;
    }
    CancelInput input;
    input.by = caller.user;
    co_return co_await command(*actor, std::move(input));
}

Task<Result<std::string>> ControlService::restart(Caller caller, std::string id) {
    const auto actor = co_await registry_.commanded(caller, id);
    if (!actor) {
        co_return fail(actor.error());
    }
    if (!*actor) {
        co_return fail(Errc::conflict, "the job is over");
    }
    RestartInput input;
    input.by = caller.user;
    co_return co_await command(*actor, std::move(input));
}

Task<Result<std::string>> ControlService::checkpoint(Caller caller, std::string id) {
    const auto actor = co_await registry_.commanded(caller, id);
    if (!actor) {
        co_return fail(actor.error());
    }
    if (!*actor) {
        co_return fail(Errc::conflict, "the job is over");
    }
    SaveInput input;
    input.by = caller.user;
    co_return co_await command(*actor, std::move(input));
}

Task<Result<std::string>> ControlService::take_evidence(Caller caller, std::string id) {
    const auto actor = co_await registry_.commanded(caller, id);
    if (!actor) {
        co_return fail(actor.error());
    }
    if (!*actor) {
        co_return fail(Errc::conflict, "the job is over");
    }
    EvidenceInput input;
    input.by = caller.user;
    co_return co_await command(*actor, std::move(input));
}

Task<Result<std::string>> ControlService::cancel_sweep(Caller caller, std::string id) {
    const auto job = co_await registry_.load(caller, id);
    if (!job) {
        co_return fail(job.error());
    }
    if (!(*job)->sweep) {
        co_return fail(Errc::invalid, "sweep: " + id + " is not of one");
    }
    std::vector<std::string> members;
    for (const auto& [other, actor] : registry_.unfinished()) {
        if (actor->job().sweep && actor->job().sweep->id == (*job)->sweep->id) {
            members.push_back(other);
        }
    }
    std::sort(members.rbegin(), members.rend());  // the last ones first: none of them starts yet
    std::int64_t count = 0;
    for (const std::string& member : members) {
        const auto done = co_await cancel(caller, member);
        if (!done) {
            co_return fail(done.error());
        }
        ++count;
    }
    Json out = Json::object();
    out["cancelled"] = count;
    co_return dump_json(out);
}

Result<std::shared_ptr<AgentSession>> ControlService::open(const std::string& ticket_sha256,
                                                           std::shared_ptr<AgentPeer> peer,
                                                           std::string remote) {
    forget_retired();
    const auto found = tickets_.find(ticket_sha256);
    if (found == tickets_.end() || stopping_) {
        return fail(stopping_ ? Errc::unavailable : Errc::denied,
                    stopping_ ? "the daemon is stopping" : "no live attempt has this ticket");
    }
    const ActorPtr& actor = found->second.first;
    const auto nodes = static_cast<std::size_t>(actor->job().spec.resources.allocated_nodes());
    auto place = place_of_caller(ticket_sha256, nodes + limits::kCallersBeyondNodes);
    if (place == nullptr) {
        return fail(Errc::exhausted, "too many agents of this attempt are calling in");
    }
    const auto on_batch = [this](std::shared_ptr<AgentLink> link, Batch batch, std::string bytes) {
        ingest_.add(std::move(link), std::move(batch), std::move(bytes));
    };
    const auto on_gpus = [this](std::shared_ptr<AgentLink> link, const GpuBatch& look) {
        ingest_.add(std::move(link), look);
    };
    auto link = std::make_shared<AgentLink>(actor, found->second.second, std::move(peer),
                                            std::move(remote), on_batch, on_gpus);
    link->place = std::move(place);
    return link;
}

std::shared_ptr<void> ControlService::place_of_caller(const std::string& ticket_sha256,
                                                      std::size_t most) {
    std::size_t& count = (*callers_)[ticket_sha256];
    if (count >= most) {
        return nullptr;
    }
    ++count;
    const auto leave = [callers = callers_, ticket_sha256](void*) {
        const auto at = callers->find(ticket_sha256);
        if (--at->second == 0) {
            callers->erase(at);
        }
    };
    return std::shared_ptr<void>{callers_.get(), leave};
}

}  // namespace lockstep
