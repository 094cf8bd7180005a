// Who is to blame when operations of NCCL end no more: what every rank says of itself, and what
// follows from it. Values and pure functions: any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Where a rank is, by its own word.
struct NcclPosition {
    std::int64_t called = 0;  // operations since the communicator was made
    std::int64_t done = 0;    // of them, by the GPU
    // NCCL's own error there: 0 = none; remote: it only reports another rank.
    std::int32_t error = 0;
    bool remote = false;
    std::string text;  // the operation that is under way or was the last, or the error

    std::string encode() const;
    static std::optional<NcclPosition> decode(std::string_view text);
};

// By index of the rank; nothing = it did not say. `alarm`: what was noticed first, and by whom. In
// this order: a rank with an error of its own; ranks that are silent; ranks that have called less
// than the others; ranks whose last call differs; otherwise nobody can be told apart.
std::string verdict(const std::vector<std::optional<NcclPosition>>& ranks, std::string_view alarm);

}  // namespace lockstep
