// Server-sent events for one client: a bounded queue between who publishes and the session that
// writes. Format: https://html.spec.whatwg.org/multipage/server-sent-events.html §9.2. Control
// thread; shared by the publisher's subscription and the session.
#pragma once

#include "daemon/http/base/message.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// "id: …\nevent: …\ndata: …\n\n"; each line of the data gets its own "data:". No id when 0.
std::string format_event(Seq id, std::string_view kind, std::string_view data);

class EventStream final : public BodyStream {
  public:
    struct Settings {
        std::size_t queue = limits::kStreamQueue;  // messages
        std::chrono::milliseconds heartbeat = limits::kStreamHeartbeat;
    };
    EventStream(net::io_context& io, Settings settings);

    // False when the stream has ended: unsubscribe. A full queue ends it; the client comes back
    // with Last-Event-ID.
    bool push(Seq id, std::string_view kind, std::string_view data);
    // Already formatted text, for what was before the subscription; counts as one message.
    bool push_raw(std::string text);
    // One that a slow reader may miss: the oldest of these go when there is more than a MiB of
    // them.
    bool push_latest(std::string_view kind, std::string_view data);
    bool ended() const { return ended_; }
    // As a full queue does.
    void end_lagging() { end(true); }

    // What is queued; a comment line when nothing came for a heartbeat.
    Task<std::optional<std::string>> next() override;
    void close() override;
    bool lagged() const override { return lagged_; }

  private:
    void end(bool lagged);

    net::steady_timer timer_;
    Settings settings_;
    std::string queue_;
    std::size_t queued_ = 0;
    std::deque<std::string> latest_;  // oldest first
    std::size_t latest_bytes_ = 0;
    bool ended_ = false;
    bool lagged_ = false;
};

}  // namespace lockstep
