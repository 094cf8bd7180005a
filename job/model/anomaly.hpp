// What can be wrong with a run that goes on: words of the API, of events and of metrics. Values
// only; any thread.
#pragma once

#include "job/base/enum_table.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

enum class AnomalyKind : std::uint8_t {
    straggler,        // a rank that computes longer than the others, which wait for it
    slow_node,        // half of a node's ranks are stragglers, or more
    nonfinite,        // NaN or infinity in what a rank reports of itself
    loss_spike,       // the loss is far above what it was
    grad_norm_spike,  // the same of the gradient norm
    divergence,       // the loss grows, for minutes
    data_starved,     // the ranks wait for data
    rank_silent,      // a rank says nothing while others do
    hang,             // no rank makes a step any more
    desync,           // a rank has not launched an operation of NCCL in which others wait for it
};
inline constexpr std::size_t kAnomalyKinds = 10;
inline constexpr std::array<std::string_view, kAnomalyKinds> kAnomalyNames{
    "straggler",  "slow_node",    "nonfinite",   "loss_spike", "grad_norm_spike",
    "divergence", "data_starved", "rank_silent", "hang",       "desync"};
static_assert(names_all_of<AnomalyKind>(kAnomalyNames));

constexpr std::string_view to_string(AnomalyKind kind) {
    return kAnomalyNames[static_cast<std::size_t>(kind)];
}
constexpr std::optional<AnomalyKind> parse_anomaly_kind(std::string_view text) {
    for (std::size_t i = 0; i < kAnomalyKinds; ++i) {
        if (kAnomalyNames[i] == text) {
            return static_cast<AnomalyKind>(i);
        }
    }
    return std::nullopt;
}

}  // namespace lockstep
