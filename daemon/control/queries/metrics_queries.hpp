// What Prometheus reads: everything, one job, which jobs there are. A job that is over is a target
// for a while, with an empty body, which ends its series. Control thread only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/metrics_exposition.hpp"
#include "daemon/telemetry/exposition/metric_samples.hpp"

#include <chrono>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class MetricsQueries final : public MetricsExposition {
  public:
    MetricsQueries(ControlContext& context, const JobRegistry& registry)
        : context_(context), registry_(registry) {}

    MetricsBody metrics(const Caller& caller, std::string_view accept) override;
    MetricsBody own_metrics(std::string_view accept) override;
    Result<MetricsBody> job_metrics(const Caller& caller, std::string_view id,
                                    telemetry::Shard shard, std::string_view accept) override;
    std::vector<ScrapeTarget> scrape_targets(const Caller& caller) override;
    // Of the series of all jobs, their ranks and GPUs: those of /metrics but the daemon's own.
    telemetry::MetricSamples samples() const;

    // The job is over: a target that Prometheus may still have.
    void finish(const Job& job);
    // The job is none any more.
    void forget(const std::string& job);

  private:
    struct Exposed;  // what a body of metrics borrows from while it is written
    void expose_totals(Exposed& out) const;
    void expose_job(Exposed& out, const JobRegistry::ActorPtr& actor) const;
    void expose_all(Exposed& out) const;
    void expose_for(const Caller& caller, Exposed& out) const;
    void count_what_is_here() const;
    void forget_left();

    struct Left {
        std::string id;
        std::string user;
        std::chrono::steady_clock::time_point at;
    };

    ControlContext& context_;
    const JobRegistry& registry_;
    std::deque<Left> left_;  // oldest first
};

}  // namespace lockstep
