#include "daemon/http/server/event_feed.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/wire/batch.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {
constexpr std::size_t kReplayPage = 500;
// What the browser waits before it comes back, milliseconds.
constexpr std::string_view kRetry = "retry: 2000\n";
}  // namespace

Result<TopicSet> TopicSet::parse(std::string_view text) {
    TopicSet out;
    for (auto& word : split(text, ',')) {
        if (word.starts_with("steps.")) {
            if (!out.add_steps(word)) {
                return fail(Errc::invalid,
                            "\"" + printable(word).substr(0, 64) +
                                "\" is not a topic: use steps.<id>.<metric>, further "
                                "metrics with a + before each");
            }
        } else if (!out.add_plain(word)) {
            return fail(
                Errc::invalid,
                "\"" + printable(word).substr(0, 64) +
                    "\" is not a topic: use jobs, job.<id>, ranks.<id> or steps.<id>.<metric>");
        }
        if (out.topics_.size() > limits::kTopics) {
            return fail(Errc::invalid, "more than " + std::to_string(limits::kTopics) + " topics");
        }
    }
    return out;
}

bool TopicSet::add_plain(const std::string& word) {
    const auto dot = word.find('.');
    const auto kind = std::string_view{word}.substr(0, dot);
    if (word == "jobs") {
        all_jobs_ = true;
        return true;
    }
    if (dot == std::string::npos || (kind != "job" && kind != "ranks") ||
        !is_job_id(std::string_view{word}.substr(dot + 1))) {
        return false;
    }
    topics_.insert(word);
    return true;
}

bool TopicSet::add_steps(std::string_view word) {
    const auto first = word.find('.');
    const auto second = word.find('.', first + 1);
    if (second == std::string_view::npos ||
        !is_job_id(word.substr(first + 1, second - first - 1))) {
        return false;
    }
    // A + that is not encoded is a space in a query.
    std::string metrics{word.substr(second + 1)};
    std::replace(metrics.begin(), metrics.end(), ' ', '+');
    for (const std::string& metric : split(metrics, '+')) {
        if (!is_metric_name(metric)) {
            return false;
        }
        topics_.insert(std::string{word.substr(0, second + 1)} + metric);
    }
    return true;
}

std::vector<std::string> TopicSet::followed() const {
    std::vector<std::string> out;
    std::copy_if(topics_.begin(), topics_.end(), std::back_inserter(out),
                 [](const std::string& topic) {
                     return topic.starts_with("ranks.") || topic.starts_with("steps.");
                 });
    return out;
}

bool TopicSet::wants(std::string_view topic) const {
    return (all_jobs_ && topic.starts_with("job.")) || topics_.contains(topic);
}

EventFeed::EventFeed(net::io_context& io, JobStream& jobs, telemetry::DaemonMetrics& metrics,
                     Caller caller, TopicSet topics, std::optional<std::int64_t> after,
                     EventStream::Settings settings)
    : jobs_(jobs),
      caller_(std::move(caller)),
      topics_(std::move(topics)),
      live_(io, settings),
      held_cap_(settings.queue),
      // An id above all there are is of a store that is not this one (a restored backup): taken at
      // its word it would hide every event up to it.
      told_(after.value_or(0) <= jobs.last_seq() ? after.value_or(0) : 0),
      replaying_(after.has_value() && *after <= jobs.last_seq()),
      sent_events_(metrics.stream_events("job")),
      sent_snapshots_(metrics.stream_events("ranks")),
      sent_steps_(metrics.stream_events("steps")) {
    for (const std::string& topic : topics_.followed()) {
        followed_.push_back(jobs_.follow(caller_, topic));
    }
}

std::shared_ptr<EventFeed> EventFeed::start(net::io_context& io, JobStream& jobs,
                                            telemetry::DaemonMetrics& metrics, Caller caller,
                                            TopicSet topics, std::optional<std::int64_t> after,
                                            EventStream::Settings settings) {
    std::shared_ptr<EventFeed> feed{
        new EventFeed(io, jobs, metrics, std::move(caller), std::move(topics), after, settings)};
    const std::weak_ptr<EventFeed> weak = feed;
    feed->subscription_ = jobs.subscribe([weak](const StreamMessage& message) {
        if (const auto alive = weak.lock()) {
            alive->receive(message);
        }
    });
    return feed;
}

bool EventFeed::wants(const StreamMessage& message) const {
    return caller_.sees(message.user) && topics_.wants(message.topic);
}

void EventFeed::receive(const StreamMessage& message) {
    if (!wants(message) || live_.ended()) {
        return;
    }
    if (message.newest_wins) {
        if (!replaying_ && live_.push_latest(message.event, *message.data)) {
            sent_steps_.Increment();
        }
    } else if (!replaying_) {
        // Events that the replay has already sent may be published a moment later.
        if (message.seq == 0 || message.seq > told_) {
            if (live_.push(message.seq, message.event, *message.data)) {
                (message.seq == 0 ? sent_snapshots_ : sent_events_).Increment();
            }
        }
    } else if (message.seq != 0) {  // snapshots come again
        held_.push_back(message);
        if (held_.size() > held_cap_) {
            // It resumes where the replay got to.
            live_.end_lagging();
        }
    }
}

Task<std::string> EventFeed::replay_page() {
    std::string text;
    while (text.empty() && replaying_ && !live_.ended()) {
        auto page = co_await jobs_.replay(told_, kReplayPage);
        if (!page) {
            log::warn("cannot replay events", {{"error", page.error().text()}});
            live_.close();
            break;
        }
        for (const auto& message : *page) {
            told_ = std::max(told_, message.seq);
            if (wants(message)) {
                text += format_event(message.seq, message.event, *message.data);
                sent_events_.Increment();
            }
        }
        if (page->size() < kReplayPage) {
            go_live();
        }
    }
    co_return text;
}

void EventFeed::go_live() {
    replaying_ = false;
    for (const auto& message : std::exchange(held_, {})) {
        receive(message);
    }
}

Task<std::optional<std::string>> EventFeed::next() {
    if (!std::exchange(greeted_, true)) {
        std::string hello{kRetry};
        if (!replaying_) {
            // Sets the client's Last-Event-ID without an event.
            hello += "id: " + std::to_string(jobs_.last_seq()) + "\n";
        }
        co_return hello + "\n";
    }
    if (replaying_) {
        auto text = co_await replay_page();
        if (!text.empty()) {
            co_return text;
        }
    }
    co_return co_await live_.next();
}

void EventFeed::close() {
    subscription_.reset();
    followed_.clear();
    live_.close();
}

}  // namespace lockstep
