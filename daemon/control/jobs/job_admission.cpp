#include "daemon/control/jobs/job_admission.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/store/job_records.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {

Result<UserQuotas::Hold> JobAdmission::take_room(const std::string& user, std::size_t count) {
    return quotas_.take(user, count, context_.settings.of_user, context_.clock.steady());
}

Status JobAdmission::check_stored(const Caller& caller) const {
    return caller.admin ? Status{}
                        : context_.stored.check(caller.user, context_.settings.user_bytes);
}

WaitingLine::Entry JobAdmission::entry(const Job& job, std::set<std::string> after) {
    WaitingLine::Entry out;
    out.id = job.id.value;
    out.user = job.user;
    out.after = std::move(after);
    if (job.sweep) {
        out.sweep = job.sweep->id;
        out.max_parallel = job.sweep->max_parallel;
    }
    return out;
}

// Jobs may end while the store is read; what is returned has been looked at after the last wait.
Task<Result<JobAdmission::After>> JobAdmission::look_at_after(std::vector<std::string> ids) {
    std::map<std::string, JobState> over;
    for (;;) {
        After out;
        std::string unknown;
        for (const std::string& id : ids) {
            if (registry_.find(id)) {
                out.waiting.insert(id);
                continue;
            }
            const auto known = over.find(id);
            if (known == over.end()) {
                unknown = id;
                break;
            }
            if (known->second != JobState::succeeded) {
                out.failed = id;
            }
        }
        if (unknown.empty()) {
            co_return out;
        }
        const std::function<Result<std::optional<JobRow>>(Database&)> read =
            [unknown](Database& db) { return JobRecords{db}.find(JobId{unknown}); };
        const auto row = co_await context_.store.read<std::optional<JobRow>>(read);
        LOCKSTEP_CO_TRY(row);
        if (!*row) {
            over[unknown] = JobState::cancelled;  // removed since somebody looked: nobody can say
        } else if (is_final((*row)->state)) {
            over[unknown] = (*row)->state;
        }
    }
}

Task<Status> JobAdmission::stand_in_line(std::vector<JobRegistry::ActorPtr> actors) {
    After after;
    const std::vector<std::string> ids = actors.front()->job().spec.after;
    if (!ids.empty()) {
        auto stands = co_await look_at_after(ids);
        LOCKSTEP_CO_TRY(stands);
        after = std::move(*stands);
    }
    for (const JobRegistry::ActorPtr& actor : actors) {
        if (actor->over() || actor->started()) {
            continue;  // cancelled while we looked
        }
        if (!after.failed.empty()) {
            actor->post(DependencyInput{after.failed});
            continue;
        }
        const std::size_t ahead = window_.taken() + line_.ahead_of(actor->job().user);
        std::string why = line_.add(entry(actor->job(), after.waiting));
        if (why.empty() && ahead >= context_.settings.window) {
            why =
                "waiting for its turn: " + std::to_string(ahead) + " jobs were ahead when it came";
        }
        actor->set_pending_reason(std::move(why));
    }
    admit_next();
    co_return Status{};
}

void JobAdmission::take_up(JobActor& actor, const After& after) {
    const Job& job = actor.job();
    if (job.attempt() != nullptr) {
        window_.enter(job.id.value, job.user);
        window_.set_aside(job.id.value, actor.aside());
        line_.occupy(entry(job, {}));
        actor.start();
    } else if (job.cancel_requested_at != 0 || job.blocked) {
        actor.start();
    } else if (!after.failed.empty()) {
        actor.post(DependencyInput{after.failed});
    } else {
        actor.set_pending_reason(line_.add(entry(job, after.waiting)));
    }
}

void JobAdmission::set_aside(JobActor& actor) {
    window_.set_aside(actor.job().id.value, actor.aside());
    admit_next_soon();
}

void JobAdmission::finish(const Job& job) {
    quotas_.ended(job.user);
    window_.leave(job.id.value);
    move_on(job.id.value, job.state == JobState::succeeded);
    admit_next_soon();
}

void JobAdmission::admit_next_soon() {
    net::post(context_.io, [this] { admit_next(); });
}

void JobAdmission::admit_next() {
    window_.set_size(context_.settings.window);
    const auto may = [this](const std::string& user) { return window_.takes(user); };
    while (!halted_) {
        const std::string id = line_.take_next(may);
        if (id.empty()) {
            break;
        }
        if (const JobRegistry::ActorPtr actor = registry_.find(id)) {
            window_.enter(id, actor->job().user);
            actor->set_pending_reason("");
            actor->start();
        }
    }
}

void JobAdmission::move_on(const std::string& id, bool succeeded) {
    const WaitingLine::Settled settled = line_.finished(id, succeeded);
    for (const std::string& ready : settled.ready) {
        if (const JobRegistry::ActorPtr actor = registry_.find(ready)) {
            actor->set_pending_reason("");
        }
    }
    for (const auto& [waiting, why] : settled.waiting) {
        if (const JobRegistry::ActorPtr actor = registry_.find(waiting)) {
            actor->set_pending_reason(why);
        }
    }
    for (const std::string& failed : settled.failed) {
        if (const JobRegistry::ActorPtr actor = registry_.find(failed)) {
            actor->post(DependencyInput{id});
        }
    }
}

}  // namespace lockstep
