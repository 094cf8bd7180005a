// What MetricText would write, before it is text: the samples of one collection with their series,
// for remote write. A value; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// By its metric's name and its labels as add_label() makes them, without braces.
struct MetricSeries {
    std::string_view name;
    std::string_view labels;
    bool operator==(const MetricSeries&) const = default;
};
struct MetricSeriesHash {
    std::size_t operator()(const MetricSeries& series) const {
        const std::hash<std::string_view> hash;
        return hash(series.labels) ^ (hash(series.name) * 31);
    }
};

class MetricSamples {
  public:
    void add(std::string_view name, std::string_view suffix, std::string_view labels, double value);
    std::size_t size() const { return samples_.size(); }
    // Of the sample with this index; the views are good until add() or the end of the object.
    MetricSeries series(std::size_t index) const;
    double value(std::size_t index) const { return samples_[index].value; }

  private:
    struct Sample {
        std::size_t name = 0;  // where it begins in text_
        std::size_t labels = 0;
        std::uint32_t name_bytes = 0;
        std::uint32_t labels_bytes = 0;
        double value = 0;
    };
    std::string text_;  // the names, each once for the samples of a family, and labels
    std::vector<Sample> samples_;
};

}  // namespace lockstep::telemetry
