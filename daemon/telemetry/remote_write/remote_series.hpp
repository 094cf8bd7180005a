// Which series there are from one collection to the next: a series that was there and is not any
// more ends with a stale marker, as Prometheus would write after a scrape. Keeps the newest
// collection. One thread.
#pragma once

#include "daemon/telemetry/exposition/metric_samples.hpp"

#include <functional>

namespace lockstep::telemetry {

class RemoteSeries {
  public:
    // `series` is valid during the call.
    using Take = std::function<void(const MetricSeries& series, double value)>;

    // Every sample in its order, then a stale marker for every series that has ended.
    void read(MetricSamples samples, const Take& take);

  private:
    MetricSamples before_;
};

}  // namespace lockstep::telemetry
