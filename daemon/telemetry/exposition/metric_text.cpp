#include "daemon/telemetry/exposition/metric_text.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr std::string_view kOpenMetrics = "application/openmetrics-text";

// The q-value of one media range of an Accept header; 1 if it gives none.
double quality(std::string_view range) {
    const auto at = range.find("q=");
    if (at == std::string_view::npos) {
        return 1;
    }
    const std::string_view rest = range.substr(at + 2);
    return to_double(trim(rest.substr(0, rest.find(';')))).value_or(0);
}

std::string_view sample_suffix(MetricType type) {
    switch (type) {
        case MetricType::counter:
            return "_total";
        case MetricType::info:
            return "_info";
        case MetricType::gauge:
        case MetricType::histogram:
            break;
    }
    return {};
}

std::string_view type_word(MetricType type, TextFormat format) {
    switch (type) {
        case MetricType::counter:
            return "counter";
        case MetricType::gauge:
            return "gauge";
        case MetricType::histogram:
            return "histogram";
        case MetricType::info:
            return format == TextFormat::openmetrics ? "info" : "gauge";
    }
    return "untyped";
}

// The shortest text that reads back as the same number; at most 24 characters.
// Returns its end.
char* put_number(char* to, double value) {
    const auto put = [to](std::string_view text) {
        return std::copy(text.begin(), text.end(), to);
    };
    if (std::isnan(value)) {
        return put("NaN");
    }
    if (std::isinf(value)) {
        return put(value > 0 ? "+Inf" : "-Inf");
    }
    // 1000000, not 1e+06; and faster.
    if (std::abs(value) < 1e15 && value == std::trunc(value)) {
        return std::to_chars(to, to + 32, static_cast<std::int64_t>(value)).ptr;
    }
    return std::to_chars(to, to + 32, value).ptr;
}

// Characters that go into a label as they are. A table and no early end: GPUs have 20,000 labels.
constexpr std::array<bool, 256> kPlain = [] {
    std::array<bool, 256> plain{};
    for (std::size_t c = ' '; c < 0x7F; ++c) {
        plain[c] = c != '"' && c != '\\';
    }
    return plain;
}();

bool is_plain(std::string_view text) {
    bool plain = true;
    for (const char c : text) {
        plain = plain && kPlain[static_cast<unsigned char>(c)];
    }
    return plain;
}

}  // namespace

TextFormat negotiate(std::string_view accept) {
    double open = 0;
    double plain = 0;
    for (const auto& range : split(accept, ',')) {
        const std::string_view text = trim(range);
        if (text.starts_with(kOpenMetrics)) {
            open = std::max(open, quality(text));
        } else if (text.starts_with("text/plain") || text.starts_with("text/*") ||
                   text.starts_with("*/*")) {
            plain = std::max(plain, quality(text));
        }
    }
    return open > 0 && open >= plain ? TextFormat::openmetrics : TextFormat::prometheus;
}

std::string_view content_type(TextFormat format) {
    return format == TextFormat::openmetrics
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

void add_label(std::string& labels, std::string_view name, std::string_view value) {
    if (value.empty()) {
        return;
    }
    if (!labels.empty()) {
        labels += ',';
    }
    labels += name;
    labels += "=\"";
    if (is_plain(value)) {
        labels += value;
    } else {
        // One byte that is not UTF-8 would cost the whole scrape.
        for (const char c : printable(value)) {
            if (c == '\n') {
                labels += "\\n";
                continue;
            }
            if (c == '"' || c == '\\') {
                labels += '\\';
            }
            labels += c;
        }
    }
    labels += '"';
}

void MetricText::family(std::string_view name, MetricType type, std::string_view help) {
    name_ = name;
    type_ = type;
    help_ = help;
    header_written_ = false;
}

void MetricText::header() {
    header_written_ = true;
    // OpenMetrics names the family, Prometheus the sample.
    const std::string_view suffix =
        format_ == TextFormat::openmetrics ? std::string_view{} : sample_suffix(type_);
    out_.append("# HELP ").append(name_).append(suffix).append(" ").append(help_).append("\n");
    out_.append("# TYPE ").append(name_).append(suffix).append(" ");
    out_.append(type_word(type_, format_)).append("\n");
}

// One sample is built in place: this runs 200,000 times for one scrape of a large job.
template <class Number>
void MetricText::write(std::string_view suffix, std::string_view labels, Number value) {
    if (samples_ != nullptr) {
        samples_->add(name_, suffix, labels, static_cast<double>(value));
        return;
    }
    if (!header_written_) {
        header();
    }
    const std::size_t begin = out_.size();
    out_.resize(begin + name_.size() + suffix.size() + labels.size() + 40);
    char* to = out_.data() + begin;
    const auto put = [&to](std::string_view text) { to = std::copy(text.begin(), text.end(), to); };
    put(name_);
    put(suffix);
    if (!labels.empty()) {
        put("{");
        put(labels);
        put("}");
    }
    put(" ");
    if constexpr (std::is_integral_v<Number>) {
        to = std::to_chars(to, to + 24, value).ptr;
    } else {
        to = put_number(to, value);
    }
    put("\n");
    out_.resize(static_cast<std::size_t>(to - out_.data()));
    if (sink_ != nullptr && out_.size() >= kPieceBytes) {
        hand_out();
    }
}

void MetricText::hand_out() {
    handed_out_ += out_.size();
    out_ = (*sink_)(std::move(out_));
    out_.clear();
    out_.reserve(kPieceBytes + kPieceBytes / 64);
}

void MetricText::sample(std::string_view suffix, std::string_view labels, double value) {
    write(suffix, labels, value);
}

void MetricText::sample(std::string_view labels, double value) {
    write(sample_suffix(type_), labels, value);
}

void MetricText::sample(std::string_view labels, std::uint64_t value) {
    write(sample_suffix(type_), labels, value);
}

void MetricText::end() {
    if (format_ == TextFormat::openmetrics) {
        out_ += "# EOF\n";
    }
    if (sink_ != nullptr && !out_.empty()) {
        hand_out();
    }
}

}  // namespace lockstep::telemetry
