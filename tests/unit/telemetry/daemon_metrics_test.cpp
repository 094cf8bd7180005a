#include "daemon/telemetry/exposition/daemon_metrics.hpp"

#include "daemon/telemetry/exposition/expiry_metrics.hpp"
#include "daemon/telemetry/exposition/process_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <string>

namespace lockstep::telemetry {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text_of(const DaemonMetrics& metrics) {
    std::string out;
    MetricText text{TextFormat::prometheus, out};
    metrics.write(text);
    return out;
}

TEST(DaemonMetrics, CountsRequestsByRouteMethodAndCode) {
    DaemonMetrics metrics;
    RouteMetrics& route = metrics.route("GET", "/v1/jobs/{id}");
    EXPECT_EQ(&metrics.route("GET", "/v1/jobs/{id}"), &route);
    route.done(200, 0.003);
    route.done(200, 0.0005);
    route.done(404, 7);
    const std::string text = text_of(metrics);
    EXPECT_THAT(
        text,
        HasSubstr(
            R"(lockstep_http_requests_total{code="200",method="GET",route="/v1/jobs/{id}"} 2)"));
    EXPECT_THAT(
        text,
        HasSubstr(
            R"(lockstep_http_requests_total{code="404",method="GET",route="/v1/jobs/{id}"} 1)"));
    const std::string labels = R"(method="GET",route="/v1/jobs/{id}")";
    EXPECT_THAT(text, HasSubstr("lockstep_http_request_duration_seconds_bucket{" + labels +
                                ",le=\"0.001\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("lockstep_http_request_duration_seconds_bucket{" + labels +
                                ",le=\"5\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("lockstep_http_request_duration_seconds_bucket{" + labels +
                                ",le=\"+Inf\"} 3\n"));
    EXPECT_THAT(text,
                HasSubstr("lockstep_http_request_duration_seconds_sum{" + labels + "} 7.0035\n"));
    EXPECT_THAT(text,
                HasSubstr("lockstep_http_request_duration_seconds_count{" + labels + "} 3\n"));
}

TEST(ExpiryMetrics, SaysWhenWhatThereIsEnds) {
    DaemonMetrics metrics;
    ExpiryMetrics expiry{metrics.registry()};
    EXPECT_THAT(text_of(metrics), Not(HasSubstr("not_after_timestamp_seconds ")));
    EXPECT_THAT(text_of(metrics), Not(HasSubstr("not_after_timestamp_seconds{")));
    expiry.certificate(1'800'000'000'000);
    expiry.tokens({{"admin", 1'700'000'000'000}, {"viewer", 1'750'000'000'000}});
    EXPECT_THAT(text_of(metrics),
                HasSubstr("lockstep_certificate_not_after_timestamp_seconds 1800000000\n"));
    EXPECT_THAT(
        text_of(metrics),
        HasSubstr("lockstep_token_not_after_timestamp_seconds{role=\"admin\"} 1700000000\n"));
    expiry.certificate(1'900'000'000'000);
    expiry.tokens({{"viewer", 1'760'000'000'000}});
    EXPECT_THAT(text_of(metrics),
                HasSubstr("lockstep_certificate_not_after_timestamp_seconds 1900000000\n"));
    EXPECT_THAT(
        text_of(metrics),
        HasSubstr("lockstep_token_not_after_timestamp_seconds{role=\"viewer\"} 1760000000\n"));
    EXPECT_THAT(text_of(metrics), Not(HasSubstr("role=\"admin\"")));
}

TEST(DaemonMetrics, KnownReasonsAreThereFromTheStart) {
    DaemonMetrics metrics;
    for (const char* reason : {"queue_full", "late", "rate_limited", "bad_frame"}) {
        EXPECT_THAT(text_of(metrics), HasSubstr("lockstep_ingest_dropped_samples_total{reason=\"" +
                                                std::string{reason} + "\"} 0\n"));
    }
    EXPECT_THAT(text_of(metrics), HasSubstr("lockstep_agent_dropped_reports_total 0\n"));
    EXPECT_THAT(text_of(metrics), Not(HasSubstr("unknown_job"))) << "nothing counts there";
    metrics.ingest_dropped(DropReason::bad_frame, 3);
    EXPECT_THAT(text_of(metrics),
                HasSubstr("lockstep_ingest_dropped_samples_total{reason=\"bad_frame\"} 3\n"));
    metrics.stream_ended(StreamEnd::slow);
    EXPECT_THAT(text_of(metrics), HasSubstr("lockstep_sse_disconnects_total{reason=\"slow\"} 1\n"));
}

TEST(DaemonMetrics, ShowsWhatItIsTold) {
    DaemonMetrics metrics{"abc123"};
    metrics.http_inflight.Increment();
    metrics.stream_clients.Set(2);
    metrics.ingest_samples.Increment(1000);
    metrics.ingest_bytes.Increment(5000);
    metrics.agents(3, 1.5, 0.25);
    metrics.memory_tier(40, 123456);
    metrics.fsync_duration.Observe(0.0004);
    metrics.event_loop_lag.Observe(0.002);
    metrics.stream_events("job").Increment();
    const std::string text = text_of(metrics);
    EXPECT_THAT(text, HasSubstr("\nlockstep_http_inflight_requests 1\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_sse_clients 2\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_ingest_samples_total 1000\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_ingest_bytes_total 5000\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_agents_connected 3\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_agent_heartbeat_age_max_seconds 1.5\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_store_series{tier=\"memory\"} 40\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_store_bytes{tier=\"memory\"} 123456\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_store_fsync_duration_seconds_count 1\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_event_loop_lag_seconds_bucket{le=\"0.0025\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("\nlockstep_sse_events_total{topic=\"job\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("revision=\"abc123\""));
}

TEST(DaemonMetrics, AFamilyWithoutChildrenLeavesNoTrace) {
    DaemonMetrics metrics;
    EXPECT_THAT(text_of(metrics), Not(HasSubstr("lockstep_http_requests")));
}

TEST(ProcessMetrics, AreThoseOfThisProcess) {
    const ProcessUse use = read_process_use();
    ASSERT_TRUE(use.resident_bytes && use.virtual_bytes && use.cpu_seconds && use.start_time);
    EXPECT_GT(*use.resident_bytes, 1U << 20U);
    EXPECT_GT(*use.virtual_bytes, *use.resident_bytes);
    EXPECT_LE(*use.start_time, static_cast<double>(std::time(nullptr)) + 2);
    EXPECT_GT(*use.start_time, static_cast<double>(std::time(nullptr)) - 3600);
    EXPECT_GE(use.open_descriptors.value_or(0), 3U);
    int pair[2];
    ASSERT_EQ(::pipe(pair), 0);
    EXPECT_EQ(read_process_use().open_descriptors.value_or(0), *use.open_descriptors + 2);
    ::close(pair[0]);
    ::close(pair[1]);
    EXPECT_GE(use.threads.value_or(0), 1U);
    std::string out;
    MetricText text{TextFormat::prometheus, out};
    write_process_metrics(text, use);
    EXPECT_THAT(out, HasSubstr("# TYPE process_cpu_seconds_total counter\n"));
}

}  // namespace
}  // namespace lockstep::telemetry
