// What NCCL's Inspector, a profiler plugin, posts of a rank's operations: OTLP/HTTP as JSON
// (opentelemetry-proto, metrics/v1), with the names and attributes of NCCL's
// plugins/profiler/inspector/inspector_otel.cc, format v5.1 (aggregated: one value for each
// communicator, operation, range of message sizes and algorithm) and v5.2 (one for each operation).
// It comes from the job's own processes and is read as anything from strangers. Pure; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/nccl_bandwidth.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace lockstep {

// Of one kind of operation, on one node or across several, in one post. Small messages are slow
// wherever they go, so the values are those of the largest messages; where several communicators
// have sent such, of the one with the lowest bandwidth.
struct InspectorValue {
    double bytes_per_second = 0;  // bus bandwidth; above 0
    double seconds = 0;           // of the operation; 0 = not said
    std::uint64_t bytes = 0;      // of the message, at least
    std::uint64_t ranks = 0;      // of the communicator; 0 = not said
    std::uint64_t values = 0;     // that were posted of it, of any size
};

// Which of two of the same kind says more of the links, by the rule above: `one`.
bool tells_more(const InspectorValue& one, const InspectorValue& other);

struct InspectorPost {
    std::array<std::optional<InspectorValue>, kNcclBandwidths> by_place;
    std::uint64_t skipped = 0;  // values that mean nothing: no bandwidth, an unknown operation
};

enum class InspectorQuantity : std::uint8_t { bandwidth, time };

// One value of a post. Its texts are the sender's, and there while it is visited.
struct InspectorPoint {
    InspectorQuantity quantity = InspectorQuantity::bandwidth;
    double value = 0;           // bytes a second, or seconds; above 0
    std::size_t operation = 0;  // of kNcclOperations
    std::uint64_t nodes = 0;
    std::uint64_t ranks = 0;          // 0 = not said
    std::uint64_t bytes = 0;          // of the message, at least
    std::string_view communicator{};  // its name, which the job gives; "unknown" where it does not
    std::string_view algorithm{};     // and protocol: "RING_SIMPLE"; "" = not said
};
using InspectorVisit = std::function<void(const InspectorPoint&)>;

// invalid: no JSON within the limits of parse_json(), or not the form of OTLP. Metrics of other
// names are not looked at. `visit`: each value that means something, also of a post that turns out
// to be invalid further on.
Result<InspectorPost> parse_inspector_post(std::string_view body, const InspectorVisit& visit = {});

}  // namespace lockstep
