#include "daemon/telemetry/remote_write/remote_message.hpp"

#include <snappy.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::telemetry {
namespace {

// Wire types of protobuf.
constexpr unsigned kVarint = 0;
constexpr unsigned kFixed64 = 1;
constexpr unsigned kBytes = 2;

constexpr unsigned kTimeseries = 1;  // of WriteRequest
constexpr unsigned kLabels = 1;      // of TimeSeries
constexpr unsigned kSamples = 2;
constexpr unsigned kName = 1;  // of Label
constexpr unsigned kText = 2;
constexpr unsigned kValue = 1;  // of Sample
constexpr unsigned kTimestamp = 2;

void put_varint(std::string& out, std::uint64_t value) {
    while (value >= 0x80) {
        out += static_cast<char>((value & 0x7FU) | 0x80U);
        value >>= 7U;
    }
    out += static_cast<char>(value);
}

void put_tag(std::string& out, unsigned field, unsigned type) {
    put_varint(out, (field << 3U) | type);
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
    put_tag(out, field, kBytes);
    put_varint(out, bytes.size());
    out += bytes;
}

std::size_t varint_size(std::uint64_t value) {
    std::size_t size = 1;
    for (; value >= 0x80; value >>= 7U) {
        ++size;
    }
    return size;
}

void put_label(std::string& out, std::string_view name, std::string_view value) {
    const std::size_t size =
        2 + varint_size(name.size()) + name.size() + varint_size(value.size()) + value.size();
    put_tag(out, kLabels, kBytes);
    put_varint(out, size);
    put_bytes(out, kName, name);
    put_bytes(out, kText, value);
}

void put_sample(std::string& out, double value, UnixMillis time) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    if (std::isnan(value) && bits != kStaleNaN) {
        bits = kNormalNaN;
    }
    const auto stamp = static_cast<std::uint64_t>(time);
    put_tag(out, kSamples, kBytes);
    put_varint(out, 1 + 8 + 1 + varint_size(stamp));
    put_tag(out, kValue, kFixed64);
    for (unsigned byte = 0; byte < 8; ++byte) {
        out += static_cast<char>((bits >> (8 * byte)) & 0xFFU);
    }
    put_tag(out, kTimestamp, kVarint);
    put_varint(out, stamp);
}

// From after the opening quote; the text behind the closing one is left in `rest`.
bool take_value(std::string_view& rest, std::string& value) {
    while (!rest.empty()) {
        char c = rest.front();
        rest.remove_prefix(1);
        if (c == '"') {
            return true;
        }
        if (c == '\\') {
            if (rest.empty()) {
                return false;
            }
            c = rest.front() == 'n' ? '\n' : rest.front();
            rest.remove_prefix(1);
        }
        value += c;
    }
    return false;
}

}  // namespace

double stale_marker() {
    return std::bit_cast<double>(kStaleNaN);
}

Result<RemoteLabels> parse_series(std::string_view series) {
    const Error bad{Errc::invalid, "not a series: " + std::string{series.substr(0, 200)}};
    const auto brace = series.find('{');
    RemoteLabels out{{"__name__", std::string{series.substr(0, brace)}}};
    if (out.front().second.empty()) {
        return fail(bad);
    }
    if (brace == std::string_view::npos) {
        return out;
    }
    std::string_view rest = series.substr(brace + 1);
    while (!rest.empty() && rest.front() != '}') {
        const auto equals = rest.find("=\"");
        if (equals == std::string_view::npos || equals == 0) {
            return fail(bad);
        }
        auto& label = out.emplace_back(std::string{rest.substr(0, equals)}, std::string{});
        rest.remove_prefix(equals + 2);
        if (!take_value(rest, label.second)) {
            return fail(bad);
        }
        if (!rest.empty() && rest.front() == ',') {
            rest.remove_prefix(1);
        }
    }
    if (rest != "}") {
        return fail(bad);
    }
    return out;
}

Status RemoteMessage::add(std::string_view series, double value, UnixMillis time) {
    auto labels = parse_series(series);
    LOCKSTEP_TRY(labels);
    labels->insert(labels->end(), common_.begin(), common_.end());
    std::sort(labels->begin(), labels->end());  // receivers refuse any other order
    one_.clear();
    for (const auto& [name, text] : *labels) {
        put_label(one_, name, text);
    }
    put_sample(one_, value, time);
    put_bytes(bytes_, kTimeseries, one_);
    ++samples_;
    return {};
}

std::string RemoteMessage::take() {
    std::string out;
    snappy::Compress(bytes_.data(), bytes_.size(), &out);
    bytes_.clear();
    samples_ = 0;
    return out;
}

}  // namespace lockstep::telemetry
