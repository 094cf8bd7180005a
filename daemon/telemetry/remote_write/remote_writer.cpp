#include "daemon/telemetry/remote_write/remote_writer.hpp"

#include "daemon/telemetry/remote_write/remote_message.hpp"
#include "daemon/telemetry/remote_write/remote_queue.hpp"
#include "daemon/telemetry/remote_write/remote_series.hpp"
#include "daemon/telemetry/telemetry_limits.hpp"
#include "job/async/asio.hpp"
#include "job/async/sleep.hpp"
#include "job/base/enum_table.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr auto kIdle = std::chrono::hours{1};  // until somebody cancels it

enum class Failure : std::uint8_t { network, status, refused };
constexpr std::size_t kFailures = 3;
enum class Dropped : std::uint8_t { queue_full, refused, stopping };
constexpr std::size_t kDrops = 3;

class Counters {
  public:
    explicit Counters(prometheus::Registry& registry)
        : samples_(counter(registry, "lockstep_remote_write_samples_total",
                           "Samples that the receiver took.", {})),
          last_success_(gauge(registry, "lockstep_remote_write_last_success_timestamp_seconds",
                              "Last time the receiver took samples, seconds since the epoch.")),
          pending_(gauge(registry, "lockstep_remote_write_pending_samples",
                         "Samples that wait to be sent.")),
          pending_bytes_(gauge(registry, "lockstep_remote_write_pending_bytes",
                               "Compressed requests that wait to be sent.")) {
        constexpr std::array<const char*, kFailures> kFailureNames{"network", "status", "refused"};
        static_assert(names_all_of<Failure>(kFailureNames));
        constexpr std::array<const char*, kDrops> kDropNames{"queue_full", "refused", "stopping"};
        static_assert(names_all_of<Dropped>(kDropNames));
        for (std::size_t i = 0; i < kFailures; ++i) {
            failed_[i] = &counter(registry, "lockstep_remote_write_failed_total",
                                  "Requests that the receiver did not take; all but those refused "
                                  "are sent again.",
                                  {{"reason", kFailureNames[i]}});
        }
        for (std::size_t i = 0; i < kDrops; ++i) {
            dropped_[i] = &counter(registry, "lockstep_remote_write_dropped_total",
                                   "Samples that were given up.", {{"reason", kDropNames[i]}});
        }
    }

    void taken(std::size_t samples, UnixMillis now) {
        samples_.Increment(static_cast<double>(samples));
        last_success_.Set(static_cast<double>(now) / 1000.0);
    }
    void failed(Failure why) { failed_[static_cast<std::size_t>(why)]->Increment(); }
    void dropped(Dropped why, std::size_t samples) {
        dropped_[static_cast<std::size_t>(why)]->Increment(static_cast<double>(samples));
    }
    void pending(const RemoteQueue& queue) {
        pending_.Set(static_cast<double>(queue.samples()));
        pending_bytes_.Set(static_cast<double>(queue.bytes()));
    }

  private:
    static prometheus::Counter& counter(prometheus::Registry& registry, const char* name,
                                        const char* help, const prometheus::Labels& labels) {
        return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
    }
    static prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name,
                                    const char* help) {
        return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
    }

    prometheus::Counter& samples_;
    prometheus::Gauge& last_success_;
    prometheus::Gauge& pending_;
    prometheus::Gauge& pending_bytes_;
    std::array<prometheus::Counter*, kFailures> failed_{};
    std::array<prometheus::Counter*, kDrops> dropped_{};
};

// One line of a file. An empty secret would be sent as none.
Result<std::string> secret(const std::string& path) {
    auto text = read_file(path, limits::kRemoteSecretBytes);
    if (!text) {
        return fail(text.error().in(path));
    }
    std::string line{trim(*text)};
    const bool bad = std::any_of(line.begin(), line.end(), [](char c) {
        return static_cast<unsigned char>(c) < ' ' || c == '\x7F';
    });
    if (line.empty() || bad) {
        return fail(Errc::invalid, path + ": must hold one line");
    }
    return line;
}

}  // namespace

Result<RemoteWriteSettings> parse_remote_write(std::string_view url) {
    RemoteWriteSettings out;
    const auto scheme = url.find("://");
    if (!url.starts_with("http://") && !url.starts_with("https://")) {
        return fail(Errc::invalid, "must begin with http:// or https://");
    }
    const bool odd = std::any_of(url.begin(), url.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7F;
    });
    if (odd || url.find('#') != std::string_view::npos) {
        return fail(Errc::invalid, "holds a blank, a # or a character that is not ASCII");
    }
    const auto path = url.find_first_of("/?", scheme + 3);
    std::string server{url.substr(0, path)};
    if (path != std::string_view::npos) {
        out.target = (url[path] == '?' ? "/" : "") + std::string{url.substr(path)};
    }
    // parse_endpoint() has lockstepd's own port as its default.
    const std::string_view host = std::string_view{server}.substr(scheme + 3);
    const auto bracket = host.rfind(']');
    const auto colon = host.rfind(':');
    if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket)) {
        server += url.starts_with("https://") ? ":443" : ":80";
    }
    auto endpoint = parse_endpoint(server);
    LOCKSTEP_TRY(endpoint);
    out.endpoint = std::move(*endpoint);
    return out;
}

Result<std::string> authorization(const RemoteWriteSettings& settings) {
    if (!settings.token_file.empty()) {
        const auto token = secret(settings.token_file);
        return token ? Result<std::string>{"Bearer " + *token} : fail(token.error());
    }
    if (settings.user.empty()) {
        return std::string{};
    }
    const auto password = secret(settings.password_file);
    return password ? Result<std::string>{"Basic " + base64_encode(settings.user + ":" + *password)}
                    : fail(password.error());
}

class RemoteWriter::Worker {
  public:
    Worker(RemoteWriteSettings settings, const Clock& clock, DaemonMetrics& metrics)
        : settings_(std::move(settings)),
          clock_(clock),
          counters_(metrics.registry()),
          queue_(settings_.queue_bytes),
          pace_(clock),
          work_(net::make_work_guard(io_)) {
        net::co_spawn(io_, send(), [this](const std::exception_ptr& problem) {
            if (problem) {
                std::terminate();  // a defect: coroutines return their errors
            }
            deadline_.cancel();
            work_.reset();
        });
        thread_ = std::thread{[this] { io_.run(); }};
    }
    ~Worker() {
        thread_.join();
        const std::size_t left = queue_.samples() + in_flight_;
        if (left > 0) {
            counters_.dropped(Dropped::stopping, left);
            log::warn("remote write: not sent in time", {{"samples", left}});
        }
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void push(MetricSamples samples, UnixMillis time) {
        if (waiting_.load() >= limits::kRemoteCollectionsWaiting) {
            counters_.dropped(Dropped::queue_full, samples.size());
            return;
        }
        ++waiting_;
        net::post(io_, [this, time, samples = std::move(samples)]() mutable {
            collect(std::move(samples), time);
            --waiting_;
        });
    }
    void stop(std::chrono::milliseconds patience) {
        if (std::exchange(asked_, true)) {
            return;
        }
        net::post(io_, [this, patience] {
            stopping_ = true;
            deadline_.expires_after(patience);
            deadline_.async_wait([this](const ErrorCode& ec) {
                if (!ec) {
                    io_.stop();  // whatever waits ends with the context
                }
            });
            wake_.cancel();
            pause_.cancel();
        });
    }

  private:
    void collect(MetricSamples collected, UnixMillis time) {
        RemoteMessage message{{{"instance", settings_.instance}, {"job", "lockstep"}}};
        const auto close = [&] {
            const std::size_t samples = message.samples();
            counters_.dropped(Dropped::queue_full, queue_.push({message.take(), samples}));
        };
        series_.read(std::move(collected), [&](const MetricSeries& series, double value) {
            // What is no series would be a defect of the exposition.
            if (const Status added = message.add(series, value, time); !added) {
                log::error("remote write", {{"what", added.error().message}});
            }
            if (message.samples() >= limits::kRemoteSamples) {
                close();
            }
        });
        if (message.samples() > 0) {
            close();
        }
        counters_.pending(queue_);
        wake_.cancel();
    }

    Task<void> send() {
        for (;;) {
            if (queue_.empty()) {
                if (stopping_) {
                    co_return;
                }
                co_await sleep_on(wake_, kIdle);
                continue;
            }
            if (const auto wait = pace_.wait(); wait.count() > 0 && !skip_pause_) {
                // Cancelled when the daemon stops: one more try then, however long the pause was.
                const bool slept = co_await sleep_on(pause_, wait);
                skip_pause_ = !slept;
                continue;
            }
            skip_pause_ = false;
            RemoteRequest request = queue_.take();
            in_flight_ = request.samples;
            const auto answer = co_await try_once(request.body);
            in_flight_ = 0;
            settle(std::move(request), answer);
        }
    }

    Task<Result<ClientResponse>> try_once(const std::string& body) {
        ClientRequest request;
        request.method = "POST";
        request.target = settings_.target;
        request.body = body;
        request.deadline = settings_.timeout;
        request.headers = {{"Content-Type", "application/x-protobuf"},
                           {"Content-Encoding", "snappy"},
                           {"X-Prometheus-Remote-Write-Version", "0.1.0"}};
        auto who = authorization(settings_);
        LOCKSTEP_CO_TRY(who);
        if (!who->empty()) {
            request.headers.emplace_back("Authorization", std::move(*who));
        }
        Endpoint endpoint = settings_.endpoint;
        co_return co_await http_request(std::move(endpoint), std::move(request));
    }

    void settle(RemoteRequest request, const Result<ClientResponse>& answer) {
        switch (judge(answer)) {
            case RemoteVerdict::taken:
                counters_.taken(request.samples, clock_.wall());
                pace_.succeeded();
                tell(answer, true);
                break;
            case RemoteVerdict::refused:
                counters_.failed(Failure::refused);
                counters_.dropped(Dropped::refused, request.samples);
                pace_.succeeded();  // it answers
                tell(answer, false);
                break;
            case RemoteVerdict::again:
                counters_.failed(answer ? Failure::status : Failure::network);
                pace_.failed(answer ? retry_after(*answer) : std::nullopt);
                counters_.dropped(Dropped::queue_full, queue_.put_back(std::move(request)));
                tell(answer, false);
                break;
        }
        counters_.pending(queue_);
    }

    // Only what is news.
    void tell(const Result<ClientResponse>& answer, bool good) {
        constexpr std::size_t kShown = 200;
        const std::string what =
            good      ? std::string{}
            : !answer ? answer.error().message
                      : "HTTP " + std::to_string(answer->status) + ": " +
                            printable(trim(std::string_view{answer->body}.substr(0, kShown)));
        const std::string kind = good ? "" : answer ? std::to_string(answer->status) : "network";
        if (kind == told_) {
            return;
        }
        told_ = kind;
        if (good) {
            log::info("remote write: samples are taken",
                      {{"receiver", settings_.endpoint.authority()}});
        } else {
            log::warn("remote write: samples are not taken",
                      {{"receiver", settings_.endpoint.authority()}, {"what", what}});
        }
    }

    const RemoteWriteSettings settings_;
    const Clock& clock_;
    // Before what waits on it: frames that are still suspended end with it.
    net::io_context io_{1};
    net::steady_timer wake_{io_};   // something to send
    net::steady_timer pause_{io_};  // until the next try
    net::steady_timer deadline_{io_};
    Counters counters_;
    RemoteSeries series_;
    RemoteQueue queue_;
    RemotePace pace_;
    net::executor_work_guard<net::io_context::executor_type> work_;
    std::atomic<std::size_t> waiting_{0};  // collections handed over
    std::size_t in_flight_ = 0;            // samples
    bool stopping_ = false;
    bool skip_pause_ = false;
    bool asked_ = false;  // the control thread's
    std::string told_;    // what the log says last: "" = all is well
    std::thread thread_;
};

RemoteWriter::RemoteWriter(RemoteWriteSettings settings, const Clock& clock, DaemonMetrics& metrics)
    : worker_(std::make_unique<Worker>(std::move(settings), clock, metrics)) {}

RemoteWriter::~RemoteWriter() {
    stop(std::chrono::milliseconds{0});
}

void RemoteWriter::push(MetricSamples samples, UnixMillis time) {
    worker_->push(std::move(samples), time);
}

void RemoteWriter::stop(std::chrono::milliseconds patience) {
    worker_->stop(patience);
}

}  // namespace lockstep::telemetry
