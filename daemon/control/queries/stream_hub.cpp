#include "daemon/control/queries/stream_hub.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/actor/ranks_text.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <functional>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kRanksEvery = std::chrono::milliseconds{200};  // of a job
constexpr auto kStepsEvery = std::chrono::milliseconds{100};  // of a metric; the newest step wins
constexpr std::size_t kWorstOfAStep = 8;

}  // namespace

std::shared_ptr<void> StreamHub::follow(const Caller& caller, const std::string& topic) {
    const auto dot = topic.find('.');
    const auto end = topic.find('.', dot + 1);
    const std::string id = topic.substr(dot + 1, end == std::string::npos ? end : end - dot - 1);
    const JobRegistry::ActorPtr actor = registry_.find(id);
    if (!actor || !caller.sees(actor->job().user)) {
        return nullptr;
    }
    ++followed_->topics[topic];
    if (topic.starts_with("steps.")) {
        const std::string metric = topic.substr(end + 1);
        followed_->steps[id].try_emplace(metric);
        if (auto* series = context_.series.at(id)) {
            series->watch(metric);
        }
    }
    const std::weak_ptr<Followed> followed = followed_;
    const auto leave = [followed, topic](void*) {
        if (const auto alive = followed.lock()) {
            alive->leave(topic);
        }
    };
    return std::shared_ptr<void>{nullptr, leave};
}

void StreamHub::Followed::leave(const std::string& topic) {
    const auto found = topics.find(topic);
    if (found == topics.end() || --found->second > 0) {
        return;
    }
    topics.erase(found);
    if (!topic.starts_with("steps.")) {
        return;
    }
    const auto dot = topic.find('.');
    const auto end = topic.find('.', dot + 1);
    const auto job = steps.find(topic.substr(dot + 1, end - dot - 1));
    if (job != steps.end()) {
        job->second.erase(topic.substr(end + 1));
        if (job->second.empty()) {
            steps.erase(job);
        }
    }
}

void StreamHub::publish_steps(const std::string& id) {
    telemetry::JobSeries* const series = context_.series.at(id);
    if (series == nullptr) {
        return;
    }
    const auto job = followed_->steps.find(id);
    if (job == followed_->steps.end()) {
        series->watch_only({});
        return;
    }
    std::vector<std::string> metrics;
    for (const auto& [metric, last] : job->second) {
        metrics.push_back(metric);
    }
    series->watch_only(metrics);
    const JobRegistry::ActorPtr actor = registry_.find(id);
    const auto now = context_.clock.steady();
    bool later = false;
    for (auto& [metric, last] : job->second) {
        telemetry::StepColumns& columns = series->watch(metric);
        if (now - last < kStepsEvery) {
            later = true;
            continue;
        }
        const telemetry::StepColumn* column = columns.take();
        if (column == nullptr || !actor) {
            continue;
        }
        last = now;
        StreamMessage message;
        message.topic = "steps." + id + "." + metric;
        message.event = "steps";
        message.user = actor->job().user;
        message.newest_wins = true;
        message.data = std::make_shared<const std::string>(
            telemetry::step_json(id, metric, *column, kWorstOfAStep));
        context_.bus.publish(message);
    }
    if (later && !steps_armed_) {
        publish_steps_later();
    }
}

void StreamHub::publish_steps_later() {
    steps_armed_ = true;
    steps_timer_.expires_after(kStepsEvery);
    const std::weak_ptr<Followed> alive = followed_;
    steps_timer_.async_wait([this, alive](const ErrorCode& ec) {
        if (ec || alive.expired()) {
            return;
        }
        steps_armed_ = false;
        std::vector<std::string> jobs;
        for (const auto& [one, watched] : followed_->steps) {
            jobs.push_back(one);
        }
        for (const std::string& one : jobs) {
            publish_steps(one);
        }
    });
}

void StreamHub::publish(const std::string& user, const std::vector<Event>& events) {
    if (context_.bus.has_subscribers()) {
        for (const Event& event : events) {
            context_.bus.publish(stream_message(event, user));
        }
    }
}

void StreamHub::reported(JobActor& actor) {
    publish_ranks(actor, false);
    publish_steps(actor.job().id.value);
}

void StreamHub::finish(JobActor& actor) {
    publish_ranks(actor, true);
    publish_steps(actor.job().id.value);
    published_.erase(actor.job().id.value);
}

void StreamHub::removed(const std::string& job, const std::string& user) {
    if (!context_.bus.has_subscribers()) {
        return;
    }
    Json gone = Json::object();
    gone["job"] = job;
    StreamMessage message;
    message.topic = "job." + job;
    message.event = "removed";
    message.data = std::make_shared<const std::string>(dump_json(gone));
    message.user = user;
    context_.bus.publish(message);
}

std::shared_ptr<void> StreamHub::subscribe(Sink sink) {
    return context_.bus.subscribe(std::move(sink));
}

Task<Result<std::vector<StreamMessage>>> StreamHub::replay(std::int64_t after, std::size_t limit) {
    const std::function<Result<std::vector<Event>>(Database&)> read = [after, limit](Database& db) {
        return EventRecords{db}.after(after, limit);
    };
    const auto events = co_await context_.store.read<std::vector<Event>>(read);
    LOCKSTEP_CO_TRY(events);
    std::vector<StreamMessage> out;
    std::map<std::string, std::string> owners;
    for (const Event& event : *events) {
        auto owner = owners.find(event.job.value);
        if (owner == owners.end()) {
            std::string user;
            if (const JobRegistry::ActorPtr actor = registry_.find(event.job.value)) {
                user = actor->job().user;
            } else {
                const JobId key = event.job;
                const std::function<Result<std::optional<JobRow>>(Database&)> lookup =
                    [key](Database& db) { return JobRecords{db}.find(key); };
                const auto row = co_await context_.store.read<std::optional<JobRow>>(lookup);
                user = row && row->has_value() ? (*row)->user : "";
            }
            owner = owners.emplace(event.job.value, user).first;
        }
        out.push_back(stream_message(event, owner->second));
    }
    co_return out;
}

void StreamHub::publish_ranks(JobActor& actor, bool now) {
    const std::string& id = actor.job().id.value;
    if (!followed_->topics.contains("ranks." + id)) {
        return;
    }
    const auto* series = context_.series.find(id);
    if (series == nullptr) {
        return;
    }
    auto& last = published_[id];
    const auto time = context_.clock.steady();
    if (!now && time - last < kRanksEvery) {
        return;
    }
    last = time;
    StreamMessage message;
    message.topic = "ranks." + id;
    message.event = "ranks";
    message.user = actor.job().user;
    RanksQuery first;
    first.limit = limits::kSeriesRanks;
    message.data = std::make_shared<const std::string>(
        "{\"job\":\"" + id +
        "\",\"ranks\":" + ranks_text(context_, actor.job(), series, &actor, first) + "}");
    context_.bus.publish(message);
}

}  // namespace lockstep
