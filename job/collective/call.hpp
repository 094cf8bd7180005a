// One call of a collective operation, as the ranks must agree on it. A value: any thread.
#pragma once

#include "job/collective/communicator.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct CollectiveCall {
    enum class Kind : std::uint64_t {
        all_reduce = 1,
        reduce,
        broadcast,
        all_gather,
        reduce_scatter,
        barrier,
        send
    };
    std::uint64_t kind = 0;
    std::uint64_t type = 0;
    std::uint64_t op = 0;
    std::uint64_t count = 0;
    std::uint64_t root = 0;
    auto operator<=>(const CollectiveCall&) const = default;

    std::string text() const {
        constexpr std::string_view kNames[] = {"?",         "all-reduce", "reduce",
                                               "broadcast", "all-gather", "reduce-scatter",
                                               "barrier",   "send"};
        return std::string{kNames[kind]} + " of " + std::to_string(count) + " " +
               std::string{to_string(static_cast<Dtype>(type))} + " (" +
               std::string{to_string(static_cast<ReduceOp>(op))} + ", root " +
               std::to_string(root) + ")";
    }
    // Never 0. Messages of different calls carry different tags (FNV-1a). A message of another size
    // than is awaited would end the process: Gloo checks it in a thread of its own, by an
    // exception.
    std::uint32_t tag() const {
        std::uint32_t hash = 2'166'136'261U;
        for (std::uint64_t word : {kind, type, op, count, root}) {
            for (; word != 0; word >>= 8U) {
                hash = (hash ^ static_cast<std::uint32_t>(word & 0xffU)) * 16'777'619U;
            }
            hash *= 16'777'619U;
        }
        return hash | 1U;
    }
};

}  // namespace lockstep
