#include "daemon/telemetry/remote_write/remote_series.hpp"

#include "daemon/telemetry/remote_write/remote_message.hpp"

#include <unordered_set>
#include <utility>

namespace lockstep::telemetry {
namespace {

bool same_series(const MetricSamples& a, const MetricSamples& b) {
    bool same = a.size() == b.size();
    for (std::size_t i = 0; same && i < a.size(); ++i) {
        same = a.series(i) == b.series(i);
    }
    return same;
}

}  // namespace

void RemoteSeries::read(MetricSamples samples, const Take& take) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
        take(samples.series(i), samples.value(i));
    }
    // Nearly always nothing has begun or ended.
    if (!same_series(samples, before_)) {
        std::unordered_set<MetricSeries, MetricSeriesHash> known;
        known.reserve(samples.size());
        for (std::size_t i = 0; i < samples.size(); ++i) {
            known.insert(samples.series(i));
        }
        for (std::size_t i = 0; i < before_.size(); ++i) {
            if (known.insert(before_.series(i)).second) {
                take(before_.series(i), stale_marker());
            }
        }
    }
    before_ = std::move(samples);
}

}  // namespace lockstep::telemetry
