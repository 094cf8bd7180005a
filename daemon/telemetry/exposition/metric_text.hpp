// Writes the Prometheus text format 0.0.4 or OpenMetrics 1.0.0 into a string.
// Sources: https://prometheus.io/docs/instrumenting/exposition_formats/ and
// https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
// A family's HELP and TYPE are written with its first sample: a family without samples leaves no
// trace. A text of megabytes can be handed out piece by piece while it is written, so that it is
// never in memory as a whole. The samples can also be had as they are, without any text. Not
// thread-safe; the string or the samples must outlive the writer.
#pragma once

#include "daemon/telemetry/exposition/metric_samples.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
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

// Takes a piece of a text, and gives the string for the next: its memory is used again.
using PieceSink = std::function<std::string(std::string)>;
inline constexpr std::size_t kPieceBytes = 256U << 10U;

class MetricText {
  public:
    MetricText(const MetricText&) = delete;
    MetricText& operator=(const MetricText&) = delete;
    MetricText(TextFormat format, std::string& out) : format_(format), out_(out) {}
    // Hands out pieces of about kPieceBytes; end() hands out the rest. `sink` outlives the writer.
    MetricText(TextFormat format, std::string& out, const PieceSink& sink)
        : format_(format), out_(out), sink_(&sink) {}
    // Writes no text: the samples go to `to`, with the names that Prometheus' text has.
    explicit MetricText(MetricSamples& to)
        : format_(TextFormat::prometheus), out_(no_text_), samples_(&to) {}
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
    std::size_t handed_out() const { return handed_out_; }  // bytes

  private:
    template <class Number>
    void write(std::string_view suffix, std::string_view labels, Number value);
    void header();
    void hand_out();

    TextFormat format_;
    std::string no_text_;
    std::string& out_;
    const PieceSink* sink_ = nullptr;
    MetricSamples* samples_ = nullptr;
    std::size_t handed_out_ = 0;
    std::string_view name_;
    std::string_view help_;
    MetricType type_ = MetricType::gauge;
    bool header_written_ = true;
};

}  // namespace lockstep::telemetry
