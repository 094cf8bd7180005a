// Sends the series of jobs, ranks and GPUs to a receiver of Prometheus remote write (Prometheus
// with --web.enable-remote-write-receiver, Mimir, Thanos, VictoriaMetrics …). Off unless asked for.
//
// Has a thread of its own: encoding, compressing, TLS and waiting for the receiver happen there.
// The control thread calls push(), which only hands the samples over, and stop(). The clock and the
// metrics outlive it. Order: requests go out one after the other, oldest first, each until it is
// taken or refused, so that no sample is out of order.
//
// A failed try (no connection, no answer in time, 5xx, 429) is repeated, with the pauses of
// RemotePace; any other answer but 2xx drops the request. What waits is bounded; what has to go is
// counted.
#pragma once

#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "daemon/telemetry/exposition/metric_samples.hpp"
#include "job/async/http_client.hpp"
#include "job/base/clock.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::telemetry {

struct RemoteWriteSettings {
    Endpoint endpoint;
    std::string target = "/";   // path and query
    std::string token_file;     // "" = none; read before every request, so that it can be renewed
    std::string user;           // "" = no basic authentication
    std::string password_file;  // of `user`
    std::string instance;       // the label; `job` is "lockstep"
    std::chrono::milliseconds timeout{30'000};
    std::size_t queue_bytes = limits::kRemoteQueueBytes;
};

// Where to: http[s]://host[:port]/path[?query], port 80 or 443 if none is given. invalid: what is
// wrong with it.
Result<RemoteWriteSettings> parse_remote_write(std::string_view url);
// "Bearer …", "Basic …" or "" as the settings say; the error names the file.
Result<std::string> authorization(const RemoteWriteSettings& settings);

class RemoteWriter {
  public:
    RemoteWriter(RemoteWriteSettings settings, const Clock& clock, DaemonMetrics& metrics);
    // Waits for the thread; what has not been sent by then is dropped and counted.
    ~RemoteWriter();
    RemoteWriter(const RemoteWriter&) = delete;
    RemoteWriter& operator=(const RemoteWriter&) = delete;

    // One collection, as it was at `time`. When two of them have not even been looked at, it is
    // dropped.
    void push(MetricSamples samples, UnixMillis time);
    // Sends what there is, for at most `patience`, and ends. Does not wait for it.
    void stop(std::chrono::milliseconds patience);

  private:
    class Worker;
    std::unique_ptr<Worker> worker_;
};

}  // namespace lockstep::telemetry
