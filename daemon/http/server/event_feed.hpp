// What GET /v1/events sends: first the stored events after Last-Event-ID, page by page, then what
// happens from now on, without a gap and without a repeat. Control thread; shared by the session
// and the subscription, which holds it weakly.
#pragma once

#include "daemon/control/base/caller.hpp"
#include "daemon/control/base/job_stream.hpp"
#include "daemon/http/server/event_stream.hpp"
#include "daemon/telemetry/exposition/daemon_metrics.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Which messages a client wants: "jobs" (every job's events), "job.<id>", "ranks.<id>",
// "steps.<id>.<metric>[+<metric>…]".
class TopicSet {
  public:
    // Comma-separated, at most 64; invalid names the word that is no topic.
    static Result<TopicSet> parse(std::string_view text);
    bool wants(std::string_view topic) const;
    // Those that are made only for who follows them (JobStream::follow()), one metric each.
    std::vector<std::string> followed() const;

  private:
    bool add_plain(const std::string& word);
    bool add_steps(std::string_view word);

    bool all_jobs_ = false;
    std::set<std::string, std::less<>> topics_;
};

class EventFeed final : public BodyStream {
  public:
    // `after`: the event the client has seen last; nothing = only what comes.
    static std::shared_ptr<EventFeed> start(net::io_context& io, JobStream& jobs,
                                            telemetry::DaemonMetrics& metrics, Caller caller,
                                            TopicSet topics, std::optional<std::int64_t> after,
                                            EventStream::Settings settings);

    Task<std::optional<std::string>> next() override;
    void close() override;
    bool lagged() const override { return live_.lagged(); }

  private:
    EventFeed(net::io_context& io, JobStream& jobs, telemetry::DaemonMetrics& metrics,
              Caller caller, TopicSet topics, std::optional<std::int64_t> after,
              EventStream::Settings settings);
    bool wants(const StreamMessage& message) const;
    void receive(const StreamMessage& message);
    // One page of past events; empty once all have been sent.
    Task<std::string> replay_page();
    void go_live();

    JobStream& jobs_;
    Caller caller_;
    TopicSet topics_;
    EventStream live_;
    std::size_t held_cap_;
    std::int64_t told_ = 0;  // stored events up to here are sent or being sent
    bool replaying_ = false;
    bool greeted_ = false;
    std::vector<StreamMessage> held_;  // came while replaying
    prometheus::Counter& sent_events_;
    prometheus::Counter& sent_snapshots_;
    prometheus::Counter& sent_steps_;
    std::vector<std::shared_ptr<void>> followed_;
    std::shared_ptr<void> subscription_;
};

}  // namespace lockstep
