// What Prometheus reads, as the HTTP edge asks for it. Control thread only.
#pragma once

#include "daemon/control/base/caller.hpp"
#include "daemon/telemetry/exposition/metric_text.hpp"
#include "daemon/telemetry/exposition/shard.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct MetricsBody {
    std::string content_type;
    std::string body;
    // If set, the body is what it hands out. To be called at once: it tells of the moment it is
    // called at, and borrows from control.
    std::function<void(const telemetry::PieceSink&)> make;
};

// What Prometheus is to read one job from, or a part of it.
struct ScrapeTarget {
    std::string job, name, user, framework;
    std::string allocation;  // "" = none
    std::size_t shards = 1;
};

class MetricsExposition {
  public:
    virtual ~MetricsExposition() = default;

    // By the request's Accept header: the daemon's own and, of jobs, ranks and GPUs, what the
    // caller may see.
    virtual MetricsBody metrics(const Caller& caller, std::string_view accept) = 0;
    // The same without the series of single jobs, their ranks and GPUs.
    virtual MetricsBody own_metrics(std::string_view accept) = 0;
    // One job's, or a part of them. Empty once it is over; not_found 30 s later.
    virtual Result<MetricsBody> job_metrics(const Caller& caller, std::string_view id,
                                            telemetry::Shard shard, std::string_view accept) = 0;
    // The jobs that have series now, by id.
    virtual std::vector<ScrapeTarget> scrape_targets(const Caller& caller) = 0;
};

}  // namespace lockstep
