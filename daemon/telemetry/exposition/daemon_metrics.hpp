// The daemon's metrics about itself, kept by prometheus-cpp. Children are made once and held by
// reference, so counting is one atomic addition; looking a child up is for start-up.
//
// Counting is safe on any thread (the store thread observes its fsyncs here); route() and write()
// are the control thread's. References handed out live as long as the DaemonMetrics.
#pragma once

#include "daemon/telemetry/exposition/metric_text.hpp"
#include "job/model/invariants.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::telemetry {

// Why telemetry was not kept. No drop is silent. rate_limited: looks at GPUs that were not their
// node's turn, by design (gpu_history.hpp).
enum class DropReason : std::uint8_t { queue_full, late, rate_limited, bad_frame };
inline constexpr std::size_t kDropReasons = 4;
// Why an SSE stream ended.
enum class StreamEnd : std::uint8_t { client, slow, stopping };
inline constexpr std::size_t kStreamEnds = 3;
// Why a connection or request was ended without an answer from a handler: every place was taken; it
// held one without a credential and another wanted it; it said nothing in time; bodies had no room.
enum class TurnedAway : std::uint8_t { full, stranger, silent, body };
inline constexpr std::size_t kTurnedAway = 4;

// One route and method of the HTTP API.
class RouteMetrics {
  public:
    RouteMetrics(prometheus::Family<prometheus::Counter>& requests, prometheus::Histogram& duration,
                 std::string_view route, std::string_view method);
    // After the answer has been written. `status` 100..599, `seconds` since the request's head.
    void done(int status, double seconds);

  private:
    prometheus::Family<prometheus::Counter>& requests_;
    prometheus::Histogram& duration_;
    std::string route_;
    std::string method_;
    std::array<prometheus::Counter*, 500> by_status_{};  // status - 100; made on first use
};

class DaemonMetrics {
  public:
    // `revision`: of the source, "" if unknown.
    explicit DaemonMetrics(std::string_view revision = {});

    // `route` is the template ("/v1/jobs/{id}"), never a raw path: its values must be few.
    RouteMetrics& route(std::string_view method, std::string_view route);
    // `values`, as ingest_samples counts them; 1 for a frame that could not be read.
    void ingest_dropped(DropReason reason, std::uint64_t values);
    void stream_ended(StreamEnd why) { stream_ends_[static_cast<std::size_t>(why)]->Increment(); }
    void turned_away(TurnedAway why) { turned_away_[static_cast<std::size_t>(why)]->Increment(); }
    void token_refused() { tokens_refused_->Increment(); }
    void audit_lost(std::size_t lines) { audit_lost_->Increment(static_cast<double>(lines)); }
    // Events sent to SSE clients; `topic` is the kind of topic ("job", "ranks"), without an id.
    prometheus::Counter& stream_events(std::string_view topic);
    // The oldest heartbeat and the largest clock offset of the agents connected, seconds.
    void agents(std::size_t connected, double heartbeat_age_max, double clock_offset_max);
    // A promise would have been broken; `index` of kInvariantNames.
    void invariant_broken(std::size_t index) { invariants_[index]->Increment(); }
    // History in memory, and in chunks on disk.
    void memory_tier(std::size_t series, std::size_t bytes);
    void disk_tier(std::size_t samples, std::size_t bytes);

    prometheus::Gauge& http_inflight;
    prometheus::Gauge& stream_clients;
    prometheus::Counter& ingest_samples;
    prometheus::Counter& ingest_bytes;
    prometheus::Counter& agent_dropped_reports;  // as agents have counted them
    prometheus::Gauge& ingest_queue_depth;
    prometheus::Histogram& ingest_lag;           // rank clock → stored, seconds
    prometheus::Histogram& event_loop_lag;       // how late a timer of the control thread fires
    prometheus::Histogram& fsync_duration;       // of the event log, seconds
    prometheus::Histogram& exposition_duration;  // rendering /metrics, seconds
    prometheus::Gauge& exposition_bytes;
    prometheus::Counter& history_expired;  // values that size or age have removed from disk

    void write(MetricText& text) const;
    // For parts that have families of their own; write() shows them too.
    prometheus::Registry& registry() { return *registry_; }

  private:
    DaemonMetrics(std::string_view revision, std::shared_ptr<prometheus::Registry> registry);

    std::shared_ptr<prometheus::Registry> registry_;
    prometheus::Family<prometheus::Counter>& requests_;
    prometheus::Family<prometheus::Histogram>& request_duration_;
    prometheus::Family<prometheus::Counter>& stream_events_;
    prometheus::Gauge& agents_connected_;
    prometheus::Gauge& heartbeat_age_max_;
    prometheus::Gauge& clock_offset_max_;
    prometheus::Gauge& memory_series_;
    prometheus::Gauge& memory_bytes_;
    prometheus::Gauge& disk_bytes_;
    prometheus::Gauge& disk_samples_;
    std::array<prometheus::Counter*, kDropReasons> dropped_{};
    std::array<prometheus::Counter*, kInvariants> invariants_{};
    std::array<prometheus::Counter*, kStreamEnds> stream_ends_{};
    std::array<prometheus::Counter*, kTurnedAway> turned_away_{};
    prometheus::Counter* tokens_refused_ = nullptr;
    prometheus::Counter* audit_lost_ = nullptr;
    std::map<std::pair<std::string, std::string>, std::unique_ptr<RouteMetrics>> routes_;
};

}  // namespace lockstep::telemetry
