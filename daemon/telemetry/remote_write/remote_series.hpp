// Which series there are from one collection to the next: a series that was there and is not any
// more ends with a stale marker, as Prometheus would write after a scrape. Keeps the text of the
// newest collection. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

namespace lockstep::telemetry {

class RemoteSeries {
  public:
    // `series` as it stands in the text, name{labels}; valid during the call.
    using Take = std::function<void(std::string_view series, double value)>;

    // Every sample of `text` (Prometheus text 0.0.4 without timestamps) in its order, then a stale
    // marker for every series that has ended.
    void read(std::string text, const Take& take);

  private:
    std::unique_ptr<const std::string> text_;     // its bytes stay where they are
    std::unordered_set<std::string_view> known_;  // of text_
};

}  // namespace lockstep::telemetry
