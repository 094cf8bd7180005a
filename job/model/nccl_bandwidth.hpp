// The bus bandwidth of NCCL's operations as agents report it: a metric of the rank for each kind of
// operation and reach, in bytes a second as NCCL's performance tests define bus bandwidth
// (nccl-tests, doc/PERFORMANCE.md). Values only; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::array<std::string_view, 8> kNcclOperations{
    "all_reduce", "all_gather", "reduce_scatter", "broadcast",
    "reduce",     "send_recv",  "send",           "recv"};
// Whether all ranks of the communicator are on one node.
inline constexpr std::array<std::string_view, 2> kNcclNodes{"one", "many"};
inline constexpr std::size_t kNcclBandwidths = kNcclOperations.size() * kNcclNodes.size();
inline constexpr std::string_view kNcclBandwidthPrefix = "nccl_bus_bandwidth_";

// The place of an operation on so many nodes among all kNcclBandwidths.
constexpr std::size_t nccl_bandwidth_place(std::size_t operation, std::size_t nodes) {
    return operation * kNcclNodes.size() + nodes;
}
constexpr std::string_view nccl_operation_at(std::size_t place) {
    return kNcclOperations.at(place / kNcclNodes.size());
}
constexpr std::string_view nccl_nodes_at(std::size_t place) {
    return kNcclNodes.at(place % kNcclNodes.size());
}
// "nccl_bus_bandwidth_all_reduce_many"
inline std::string nccl_bandwidth_metric(std::size_t place) {
    return std::string{kNcclBandwidthPrefix} + std::string{nccl_operation_at(place)} + "_" +
           std::string{nccl_nodes_at(place)};
}

// Its place, if it is the name of one.
inline std::optional<std::size_t> nccl_bandwidth_named(std::string_view name) {
    for (std::size_t place = 0; name.starts_with(kNcclBandwidthPrefix) && place < kNcclBandwidths;
         ++place) {
        if (name == nccl_bandwidth_metric(place)) {
            return place;
        }
    }
    return std::nullopt;
}

}  // namespace lockstep
