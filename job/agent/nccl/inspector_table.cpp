#include "job/agent/nccl/inspector_table.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

namespace lockstep {
namespace {

constexpr std::size_t kLongestName = 128;

// Of the job's own making, so anything: on one line. Not cut to a column, or communicators whose
// names begin alike would be one.
std::string one_name(std::string_view text) {
    std::string out = text.empty() ? "-" : printable(text.substr(0, kLongestName));
    std::replace_if(
        out.begin(), out.end(), [](char one) { return one == '\n' || one == '\t'; }, ' ');
    return out;
}

double mean(double sum, std::uint64_t values) {
    return values == 0 ? 0 : sum / static_cast<double>(values);
}

}  // namespace

bool InspectorTable::Key::operator<(const Key& other) const {
    return std::tie(operation, other.bytes, ranks, nodes, communicator, algorithm) <
           std::tie(other.operation, bytes, other.ranks, other.nodes, other.communicator,
                    other.algorithm);
}

void InspectorTable::take(const InspectorPoint& point) {
    Key key{point.operation,
            point.bytes,
            point.ranks,
            point.nodes,
            one_name(point.communicator),
            one_name(point.algorithm)};
    if (rows_.size() >= limits::kInspectorTableRows && !rows_.contains(key)) {
        left_out_ += point.quantity == InspectorQuantity::bandwidth ? 1U : 0U;
        return;
    }
    Row& row = rows_[std::move(key)];
    if (point.quantity == InspectorQuantity::bandwidth) {
        row.least = row.values == 0 ? point.value : std::min(row.least, point.value);
        row.sum += point.value;
        ++row.values;
    } else {
        row.seconds += point.value;
        row.longest = std::max(row.longest, point.value);
        ++row.times;
    }
}

std::string InspectorTable::text() const {
    if (rows_.empty()) {
        return "";
    }
    std::array<char, 512> line{};
    std::snprintf(line.data(), line.size(),
                  "%-14s %12s %6s %5s %10s %10s %10s %10s %6s  %-24s %s\n", "operation",
                  "bytes from", "ranks", "nodes", "GB/s mean", "least", "us mean", "longest",
                  "values", "algorithm", "communicator");
    std::string out = line.data();
    for (const auto& [key, row] : rows_) {
        std::snprintf(line.data(), line.size(),
                      "%-14s %12llu %6llu %5llu %10.3f %10.3f %10.1f %10.1f %6llu  %-24s %s\n",
                      std::string{kNcclOperations.at(key.operation)}.c_str(),
                      static_cast<unsigned long long>(key.bytes),
                      static_cast<unsigned long long>(key.ranks),
                      static_cast<unsigned long long>(key.nodes), mean(row.sum, row.values) / 1e9,
                      row.least / 1e9, mean(row.seconds, row.times) * 1e6, row.longest * 1e6,
                      static_cast<unsigned long long>(row.values), key.algorithm.c_str(),
                      key.communicator.c_str());
        out += line.data();
    }
    if (left_out_ > 0) {
        out += std::to_string(left_out_) + " values of other kinds are left out\n";
    }
    return out;
}

}  // namespace lockstep
