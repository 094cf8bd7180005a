// One request of Prometheus remote write 1.0: the message WriteRequest, compressed with snappy's
// block format. Sources: https://prometheus.io/docs/specs/prw/remote_write_spec/ and prometheus
// prompb/remote.proto, prompb/types.proto:
//   WriteRequest { repeated TimeSeries timeseries = 1; }
//   TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
//   Label        { string name = 1; string value = 2; }
//   Sample       { double value = 1; int64 timestamp = 2; }   // milliseconds since the Unix epoch
// The wire format (https://protobuf.dev/programming-guides/encoding/) is written by hand: four
// messages without a choice in them, straight from the exposition's samples; libprotobuf and its
// generated classes would be 3 MiB more to link and a copy of every label. Values; any one thread.
#pragma once

#include "daemon/telemetry/exposition/metric_samples.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::telemetry {

// The NaN that ends a series, and the one that is any other NaN (prometheus model/value/value.go).
inline constexpr std::uint64_t kStaleNaN = 0x7ff0000000000002;
inline constexpr std::uint64_t kNormalNaN = 0x7ff8000000000001;
double stale_marker();

using RemoteLabels = std::vector<std::pair<std::string, std::string>>;

class RemoteMessage {
  public:
    // `common`: what every series carries beside its own labels.
    explicit RemoteMessage(RemoteLabels common) : common_(std::move(common)) {}

    // One sample. A NaN that is not the stale marker becomes the normal one. invalid: its labels
    // are not what add_label() makes, or it has no name; nothing is added.
    Status add(const MetricSeries& series, double value, UnixMillis time);
    std::size_t samples() const { return samples_; }
    std::size_t bytes() const { return bytes_.size(); }
    // The request's body, compressed; the message is empty afterwards.
    std::string take();

  private:
    RemoteLabels common_;
    std::string bytes_;
    // Of the series being added; kept, so that their memory is.
    std::string one_;
    std::string unescaped_;
    std::vector<std::pair<std::string_view, std::string_view>> labels_;
    std::size_t samples_ = 0;
};

}  // namespace lockstep::telemetry
