#include "daemon/telemetry/remote_write/remote_message.hpp"

#include <snappy.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

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

using LabelViews = std::vector<std::pair<std::string_view, std::string_view>>;

// A value from after its opening quote; the text behind the closing one is left in `rest`. What has
// escapes is put into `room`, which does not move; nothing if there is no end.
std::optional<std::string_view> take_value(std::string_view& rest, std::string& room) {
    const auto end = rest.find_first_of("\"\\");
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    if (rest[end] == '"') {
        const std::string_view plain = rest.substr(0, end);
        rest.remove_prefix(end + 1);
        return plain;
    }
    const std::size_t begin = room.size();
    while (!rest.empty()) {
        char c = rest.front();
        rest.remove_prefix(1);
        if (c == '"') {
            return std::string_view{room}.substr(begin);
        }
        if (c == '\\' && !rest.empty()) {
            c = rest.front() == 'n' ? '\n' : rest.front();
            rest.remove_prefix(1);
        }
        room += c;
    }
    return std::nullopt;
}

// a="b",c="d"; false: it is not.
bool take_labels(std::string_view rest, std::string& room, LabelViews& out) {
    room.clear();
    room.reserve(rest.size());
    while (!rest.empty()) {
        const auto equals = rest.find("=\"");
        if (equals == std::string_view::npos || equals == 0) {
            return false;
        }
        const std::string_view name = rest.substr(0, equals);
        rest.remove_prefix(equals + 2);
        const auto value = take_value(rest, room);
        if (!value || (!rest.empty() && rest.front() != ',')) {
            return false;
        }
        out.emplace_back(name, *value);
        rest.remove_prefix(rest.empty() ? 0 : 1);
    }
    return true;
}

}  // namespace

double stale_marker() {
    return std::bit_cast<double>(kStaleNaN);
}

Status RemoteMessage::add(const MetricSeries& series, double value, UnixMillis time) {
    labels_.assign(common_.begin(), common_.end());
    labels_.emplace_back("__name__", series.name);
    if (series.name.empty() || !take_labels(series.labels, unescaped_, labels_)) {
        return fail(Errc::invalid, "not a series: " + std::string{series.name} + "{" +
                                       std::string{series.labels.substr(0, 200)} + "}");
    }
    std::sort(labels_.begin(), labels_.end());  // receivers refuse any other order
    one_.clear();
    for (const auto& [name, text] : labels_) {
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
