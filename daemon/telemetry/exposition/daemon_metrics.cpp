#include "daemon/telemetry/exposition/daemon_metrics.hpp"

#include "job/base/check.hpp"
#include "job/base/enum_table.hpp"
#include "job/base/version.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace lockstep::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

const Histogram::BucketBoundaries kRequestBuckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                  0.1,   0.25,   0.5,   1,    2.5,   5};
const Histogram::BucketBoundaries kFsyncBuckets{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                                0.01,   0.025,   0.05,   0.1,   0.5,    2};
const Histogram::BucketBoundaries kLagBuckets{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300};

prometheus::Family<Counter>& counters(Registry& registry, const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
Counter& counter(Registry& registry, const char* name, const char* help) {
    return counters(registry, name, help).Add({});
}
Gauge& gauge(Registry& registry, const char* name, const char* help,
             const prometheus::Labels& labels = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}
prometheus::Family<Histogram>& histograms(Registry& registry, const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

MetricType type_of(prometheus::MetricType type) {
    switch (type) {
        case prometheus::MetricType::Counter:
            return MetricType::counter;
        case prometheus::MetricType::Histogram:
            return MetricType::histogram;
        default:
            return MetricType::gauge;
    }
}

std::string bound_text(double bound) {
    if (std::isinf(bound)) {
        return "+Inf";
    }
    std::array<char, 32> digits;
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), bound,
                                         std::chars_format::fixed)
                               .ptr};
}

void write_histogram(MetricText& text, const std::string& labels,
                     const prometheus::ClientMetric::Histogram& histogram) {
    for (const auto& bucket : histogram.bucket) {
        std::string with_bound = labels;
        add_label(with_bound, "le", bound_text(bucket.upper_bound));
        text.sample("_bucket", with_bound, static_cast<double>(bucket.cumulative_count));
    }
    text.sample("_sum", labels, histogram.sample_sum);
    text.sample("_count", labels, static_cast<double>(histogram.sample_count));
}

void write_family(MetricText& text, const prometheus::MetricFamily& family) {
    MetricType type = type_of(family.type);
    std::string_view name = family.name;
    constexpr std::string_view kTotal = "_total";
    constexpr std::string_view kInfo = "_info";
    if (type == MetricType::counter && name.ends_with(kTotal)) {
        name.remove_suffix(kTotal.size());
    } else if (type == MetricType::gauge && name.ends_with(kInfo)) {
        name.remove_suffix(kInfo.size());
        type = MetricType::info;
    }
    text.family(name, type, family.help);
    std::vector<std::pair<std::string, const prometheus::ClientMetric*>> children;
    for (const auto& metric : family.metric) {
        std::string labels;
        for (const auto& label : metric.label) {
            add_label(labels, label.name, label.value);
        }
        children.emplace_back(std::move(labels), &metric);
    }
    // The library keeps children by hash: sorted, two scrapes compare line by line.
    std::sort(children.begin(), children.end());
    for (const auto& [labels, metric] : children) {
        if (type == MetricType::histogram) {
            write_histogram(text, labels, metric->histogram);
        } else {
            text.sample(labels,
                        type == MetricType::counter ? metric->counter.value : metric->gauge.value);
        }
    }
}

}  // namespace

RouteMetrics::RouteMetrics(prometheus::Family<Counter>& requests, Histogram& duration,
                           std::string_view route, std::string_view method)
    : requests_(requests), duration_(duration), route_(route), method_(method) {}

void RouteMetrics::done(int status, double seconds) {
    LOCKSTEP_CHECK(status >= 100 && status < 600);
    Counter*& child = by_status_[static_cast<std::size_t>(status - 100)];
    if (child == nullptr) {
        child = &requests_.Add(
            {{"route", route_}, {"method", method_}, {"code", std::to_string(status)}});
    }
    child->Increment();
    duration_.Observe(seconds);
}

DaemonMetrics::DaemonMetrics(std::string_view revision)
    : DaemonMetrics(revision, std::make_shared<Registry>()) {}

DaemonMetrics::DaemonMetrics(std::string_view revision, std::shared_ptr<Registry> registry)
    : http_inflight(
          gauge(*registry, "lockstep_http_inflight_requests", "HTTP requests being answered.")),
      stream_clients(gauge(*registry, "lockstep_sse_clients", "Open SSE streams.")),
      ingest_samples(counter(*registry, "lockstep_ingest_samples_total",
                             "Values received from ranks and kept.")),
      ingest_bytes(counter(*registry, "lockstep_ingest_bytes_total",
                           "Bytes of telemetry batches received.")),
      agent_dropped_reports(counter(*registry, "lockstep_agent_dropped_reports_total",
                                    "Reports that agents have lost or refused, by their own count; "
                                    "one per value where only that was refused.")),
      ingest_queue_depth(
          gauge(*registry, "lockstep_ingest_queue_depth", "Batches received and not yet durable.")),
      ingest_lag(
          histograms(*registry, "lockstep_ingest_lag_seconds", "From the rank's clock to durable.")
              .Add({}, kLagBuckets)),
      event_loop_lag(histograms(*registry, "lockstep_event_loop_lag_seconds",
                                "How late a timer of the control thread fired.")
                         .Add({}, kRequestBuckets)),
      fsync_duration(histograms(*registry, "lockstep_store_fsync_duration_seconds",
                                "Commits of the event log, fsync included.")
                         .Add({}, kFsyncBuckets)),
      exposition_duration(histograms(*registry, "lockstep_exposition_duration_seconds",
                                     "Rendering of a /metrics body.")
                              .Add({}, kRequestBuckets)),
      exposition_bytes(
          gauge(*registry, "lockstep_exposition_bytes", "Size of the previous /metrics body.")),
      history_expired(counter(*registry, "lockstep_store_expired_samples_total",
                              "Values that size or age have removed from history on disk.")),
      registry_(std::move(registry)),
      requests_(counters(*registry_, "lockstep_http_requests_total", "HTTP requests answered.")),
      request_duration_(histograms(*registry_, "lockstep_http_request_duration_seconds",
                                   "From the head of the request to the end of the answer.")),
      stream_events_(
          counters(*registry_, "lockstep_sse_events_total", "Events sent to SSE clients.")),
      agents_connected_(
          gauge(*registry_, "lockstep_agents_connected", "Agents with an open connection.")),
      heartbeat_age_max_(gauge(*registry_, "lockstep_agent_heartbeat_age_max_seconds",
                               "Age of the oldest last heartbeat of a connected agent.")),
      clock_offset_max_(gauge(*registry_, "lockstep_agent_clock_offset_max_seconds",
                              "Largest difference of a connected agent's clock from the "
                              "daemon's; NaN until one was measured.")),
      memory_series_(gauge(*registry_, "lockstep_store_series", "Series kept, rank × metric.",
                           {{"tier", "memory"}})),
      memory_bytes_(gauge(*registry_, "lockstep_store_bytes", "Bytes that series take.",
                          {{"tier", "memory"}})),
      disk_bytes_(
          gauge(*registry_, "lockstep_store_bytes", "Bytes that series take.", {{"tier", "disk"}})),
      disk_samples_(
          gauge(*registry_, "lockstep_store_samples", "Values kept.", {{"tier", "disk"}})) {
    constexpr std::array<const char*, kDropReasons> kReasons{"queue_full", "late", "rate_limited",
                                                             "bad_frame"};
    static_assert(names_all_of<DropReason>(kReasons));
    auto& dropped = counters(*registry_, "lockstep_ingest_dropped_samples_total",
                             "Values received and not kept; one per frame if it was unreadable.");
    for (std::size_t i = 0; i < kDropReasons; ++i) {
        dropped_[i] = &dropped.Add({{"reason", kReasons[i]}});
    }
    constexpr std::array<const char*, kStreamEnds> kEnds{"client", "slow", "stopping"};
    static_assert(names_all_of<StreamEnd>(kEnds));
    auto& ended = counters(*registry_, "lockstep_sse_disconnects_total", "SSE streams ended.");
    for (std::size_t i = 0; i < kStreamEnds; ++i) {
        stream_ends_[i] = &ended.Add({{"reason", kEnds[i]}});
    }
    constexpr std::array<const char*, kTurnedAway> kAway{"full", "stranger", "silent", "body"};
    static_assert(names_all_of<TurnedAway>(kAway));
    auto& away = counters(*registry_, "lockstep_http_turned_away_total",
                          "Connections and requests ended before a handler had them.");
    for (std::size_t i = 0; i < kTurnedAway; ++i) {
        turned_away_[i] = &away.Add({{"reason", kAway[i]}});
    }
    tokens_refused_ = &counter(*registry_, "lockstep_http_refused_tokens_total",
                               "Tokens, cookies and agents' tickets that were not good.");
    audit_lost_ = &counter(*registry_, "lockstep_audit_lost_lines_total",
                           "Lines that are missing in the audit log.");
    auto& broken = counters(*registry_, "lockstep_invariant_violations_total",
                            "Steps not taken because they would have broken a promise; always 0.");
    for (std::size_t i = 0; i < kInvariants; ++i) {
        invariants_[i] = &broken.Add({{"invariant", std::string{kInvariantNames[i]}}});
    }
    prometheus::Labels build{{"version", std::string{kVersion}}};
    if (!revision.empty()) {
        build.emplace("revision", std::string{revision});
    }
    gauge(*registry_, "lockstep_build_info", "Always 1; the labels say what runs.", build).Set(1);
}

RouteMetrics& DaemonMetrics::route(std::string_view method, std::string_view route) {
    auto& entry = routes_[{std::string{method}, std::string{route}}];
    if (entry == nullptr) {
        Histogram& duration = request_duration_.Add(
            {{"route", std::string{route}}, {"method", std::string{method}}}, kRequestBuckets);
        entry = std::make_unique<RouteMetrics>(requests_, duration, route, method);
    }
    return *entry;
}

void DaemonMetrics::ingest_dropped(DropReason reason, std::uint64_t values) {
    dropped_[static_cast<std::size_t>(reason)]->Increment(static_cast<double>(values));
}

Counter& DaemonMetrics::stream_events(std::string_view topic) {
    return stream_events_.Add({{"topic", std::string{topic}}});
}

void DaemonMetrics::agents(std::size_t connected, double heartbeat_age_max,
                           double clock_offset_max) {
    agents_connected_.Set(static_cast<double>(connected));
    heartbeat_age_max_.Set(heartbeat_age_max);
    clock_offset_max_.Set(clock_offset_max);
}

void DaemonMetrics::disk_tier(std::size_t samples, std::size_t bytes) {
    disk_samples_.Set(static_cast<double>(samples));
    disk_bytes_.Set(static_cast<double>(bytes));
}

void DaemonMetrics::memory_tier(std::size_t series, std::size_t bytes) {
    memory_series_.Set(static_cast<double>(series));
    memory_bytes_.Set(static_cast<double>(bytes));
}

void DaemonMetrics::write(MetricText& text) const {
    const auto families = registry_->Collect();
    for (const auto& family : families) {
        write_family(text, family);
    }
}

}  // namespace lockstep::telemetry
