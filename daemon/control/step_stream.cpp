// What is made only while somebody watches: the steps of a metric over all ranks, as they complete.
#include "daemon/control/control_service.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr auto kStepsEvery = std::chrono::milliseconds{100};  // of a metric; the newest step wins
constexpr std::size_t kWorstOfAStep = 8;

}  // namespace

std::shared_ptr<void> ControlService::follow(const Caller& caller, const std::string& topic) {
    const auto dot = topic.find('.');
    const auto end = topic.find('.', dot + 1);
    const std::string id = topic.substr(dot + 1, end == std::string::npos ? end : end - dot - 1);
    const ActorPtr actor = registry_.find(id);
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

void ControlService::Followed::leave(const std::string& topic) {
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

void ControlService::publish_steps(const std::string& id) {
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
    const ActorPtr actor = registry_.find(id);
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
}

}  // namespace lockstep
