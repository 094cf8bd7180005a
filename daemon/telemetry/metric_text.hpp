// Writes the Prometheus text format 0.0.4 or OpenMetrics 1.0.0 into a string.
// Sources: https://prometheus.io/docs/instrumenting/exposition_formats/ and
// https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
// A family's HELP and TYPE are written with its first sample: a family without samples leaves no
// trace. Not thread-safe; the string must outlive the writer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::telemetry {

enum class TextFormat { prometheus, openmetrics };
// OpenMetrics if the Accept header prefers it (or names only it), else Prometheus 0.0.4.
TextFormat negotiate(std::string_view accept);
std::string_view content_type(TextFormat format);

enum class MetricType { counter, gauge, histogram, info };

// Appends name="value", escaped; with a comma first unless `labels` is empty. An empty value is
// left out: Prometheus makes no difference between the two.
void add_label(std::string& labels, std::string_view name, std::string_view value);

class MetricText {
  public:
    MetricText(TextFormat format, std::string& out) : format_(format), out_(out) {}
    // Starts a family. `name` is without "_total" (counter) and "_info" (info); the literals must
    // outlive the family. `help` is one line.
    void family(std::string_view name, MetricType type, std::string_view help);
    // `labels` as add_label() makes them, without braces.
    void sample(std::string_view labels, double value);
    void sample(std::string_view labels, std::uint64_t value);
    // With a suffix of its own, for "_bucket", "_sum" and "_count" of a histogram.
    void sample(std::string_view suffix, std::string_view labels, double value);
    // Ends the document: "# EOF" in OpenMetrics.
    void end();

  private:
    template <class Number>
    void write(std::string_view suffix, std::string_view labels, Number value);
    void header();

    TextFormat format_;
    std::string& out_;
    std::string_view name_;
    std::string_view help_;
    MetricType type_ = MetricType::gauge;
    bool header_written_ = true;
};

}  // namespace lockstep::telemetry
