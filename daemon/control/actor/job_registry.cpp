#include "daemon/control/actor/job_registry.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/identity_records.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/removal_records.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/find_attempt.hpp"
#include "job/model/spec/sweep.hpp"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

Error no_job(std::string_view id) {
    return Error{Errc::not_found, "no job " + printable(id.substr(0, 64))};
}

}  // namespace

Task<void> JobRegistry::count_stored() {
    for (std::size_t i = 0; i < kJobStates; ++i) {
        const auto state = static_cast<JobState>(i);
        if (!is_final(state)) {
            continue;
        }
        const std::function<Result<std::int64_t>(Database&)> tally = [state](Database& db) {
            return JobRecords{db}.count(state);
        };
        const auto counted = co_await context_.store.read<std::int64_t>(tally);
        counts_.states[i] = counted ? static_cast<std::uint64_t>(*counted) : 0;
    }
}

void JobRegistry::add(ActorPtr actor) {
    const std::string id = actor->job().id.value;
    unfinished_[id] = std::move(actor);
}

void JobRegistry::finish(JobActor& actor) {
    const Job& job = actor.job();
    remember(job.id.value, job.user, actor.view());
    ++counts_
          .finished[static_cast<std::size_t>(telemetry::finish_result(job.state, job.cause.kind))];
    ++counts_.states[static_cast<std::size_t>(job.state)];
    unfinished_.erase(job.id.value);
}

void JobRegistry::remove(const std::string& id, JobState state) {
    --counts_.states[static_cast<std::size_t>(state)];
    forget(id);
}

JobRegistry::Counts JobRegistry::counts() const {
    Counts out = counts_;
    for (const auto& [id, actor] : unfinished_) {
        ++out.states[static_cast<std::size_t>(actor->job().state)];
    }
    return out;
}

JobRegistry::ActorPtr JobRegistry::find(std::string_view id) const {
    const auto found = unfinished_.find(std::string{id});
    return found == unfinished_.end() ? nullptr : found->second;
}

void JobRegistry::remember(const std::string& id, const std::string& user, Text view) {
    forget(id);
    ages_.push_front(id);
    finished_[id] = Finished{user, std::move(view), ages_.begin()};
    while (finished_.size() > limits::kFinishedJobsCached) {
        finished_.erase(ages_.back());
        ages_.pop_back();
    }
}

void JobRegistry::forget(const std::string& id) {
    if (const auto known = finished_.find(id); known != finished_.end()) {
        ages_.erase(known->second.age);
        finished_.erase(known);
    }
}

Result<JobRegistry::Text> JobRegistry::show_now(const Caller& caller, std::string_view id) {
    const std::string key{id};
    if (const auto active = unfinished_.find(key); active != unfinished_.end()) {
        if (!caller.sees(active->second->job().user)) {
            return fail(no_job(id));
        }
        return active->second->view();
    }
    const auto known = finished_.find(key);
    if (known == finished_.end()) {
        return Text{};
    }
    if (!caller.sees(known->second.user)) {
        return fail(no_job(id));
    }
    ages_.splice(ages_.begin(), ages_, known->second.age);
    return with_what_is_left(key, known->second.view);
}

// A job that is over may still hold nodes: one that does not answer is ended when it is back, or
// when the scheduler gives it up.
JobRegistry::Text JobRegistry::with_what_is_left(const std::string& id, Text view) const {
    const auto nodes = context_.scheduler.leaving(JobId{id});
    auto job = nodes ? parse_json(*view) : Result<Json>{Json::object()};
    if (!nodes || !job) {
        return view;
    }
    std::string names = *nodes;
    if (names.empty() && !(*job)["attempts"].empty()) {
        for (const Json& node : (*job)["attempts"].back().value("lost_nodes", Json::array())) {
            names += (names.empty() ? "" : ",") + node.get<std::string>();
        }
    }
    (*job)["pending_reason"] = "waits for " + std::string{context_.scheduler.title()} + " to end " +
                               (names.empty() ? "its job" : "node " + names);
    return std::make_shared<const std::string>(dump_json(*job));
}

Task<Result<JobRegistry::Text>> JobRegistry::show(Caller caller, std::string id) {
    auto now = show_now(caller, id);
    if (!now || *now) {
        co_return now;
    }
    if (!is_job_id(id)) {
        co_return fail(no_job(id));
    }
    const JobId job{id};
    const std::function<Result<std::optional<JobRow>>(Database&)> read = [job](Database& db) {
        return JobRecords{db}.find(job);
    };
    const auto row = co_await context_.store.read<std::optional<JobRow>>(read);
    LOCKSTEP_CO_TRY(row);
    if (!row->has_value() || !caller.sees((*row)->user)) {
        co_return fail(no_job(id));
    }
    auto view = std::make_shared<const std::string>(masked_view((*row)->view));
    if (is_final((*row)->state)) {
        remember(id, (*row)->user, view);
    }
    co_return view;
}

Task<Result<std::shared_ptr<const Job>>> JobRegistry::load(Caller caller, std::string id,
                                                           std::size_t events_of_ended) {
    if (const ActorPtr actor = find(id)) {
        if (!caller.sees(actor->job().user)) {
            co_return fail(no_job(id));
        }
        // The actor lives as long as whoever holds this.
        co_return std::shared_ptr<const Job>{actor, &actor->job()};
    }
    if (!is_job_id(id)) {
        co_return fail(no_job(id));
    }
    const JobId key{id};
    const std::function<Result<std::vector<Event>>(Database&)> read =
        [key, events_of_ended](Database& db) {
            return EventRecords{db}.of_job(key, 0, events_of_ended);
        };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(events);
    if (events->empty()) {
        co_return fail(no_job(id));
    }
    auto job = start_job(events->front());
    LOCKSTEP_CO_TRY(job);
    for (std::size_t i = 1; i < events->size(); ++i) {
        if (const auto applied = apply(*job, (*events)[i]); !applied) {
            co_return fail(Errc::corrupt, applied.error().message);
        }
    }
    if (!caller.sees(job->user)) {
        co_return fail(no_job(id));
    }
    find_moved_folders(*job, context_.settings.copied);
    co_return std::make_shared<const Job>(std::move(*job));
}

Task<Result<JobRegistry::ActorPtr>> JobRegistry::commanded(Caller caller, std::string id) {
    const ActorPtr actor = find(id);
    if (!actor) {
        const auto shown = co_await show(caller, id);
        LOCKSTEP_CO_TRY(shown);
    } else if (!caller.admin && caller.user != actor->job().user) {
        co_return fail(Errc::not_found, "no job " + id);
    }
    co_return actor;
}

Task<Result<UnixMillis>> JobRegistry::end_of(JobId job, std::int32_t attempt) {
    if (const ActorPtr actor = find(job.value)) {
        const Attempt* known = find_attempt(actor->job(), attempt);
        co_return known != nullptr ? known->finished_at : UnixMillis{0};  // it is about to be
    }
    const std::function<Result<bool>(Database&)> ask = [job](Database& db) {
        return IdentityRecords{db}.is_foreign(job);
    };
    const auto foreign = co_await context_.store.read<bool>(ask);
    LOCKSTEP_CO_TRY(foreign);
    if (*foreign) {
        co_return fail(Errc::not_found, job.value + " is another lockstepd's");
    }
    const std::function<Result<std::optional<JobRow>>(Database&)> read = [job](Database& db) {
        return JobRecords{db}.find(job);
    };
    const auto row = co_await context_.store.read<std::optional<JobRow>>(read);
    LOCKSTEP_CO_TRY(row);
    if (!*row) {
        const std::function<Result<std::optional<RemovalRow>>(Database&)> removed =
            [job](Database& db) { return RemovalRecords{db}.find(job); };
        const auto removal = co_await context_.store.read<std::optional<RemovalRow>>(removed);
        LOCKSTEP_CO_TRY(removal);
        if (!*removal) {
            co_return fail(Errc::not_found, "no job " + job.value);
        }
        co_return (*removal)->finished_at;
    }
    co_return is_final((*row)->state) ? (*row)->finished_at : UnixMillis{0};
}

}  // namespace lockstep
