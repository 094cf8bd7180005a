// Who is to blame when operations of NCCL end no more: what every rank says of itself, and what
// follows from it. Values and pure functions: any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// NcclPosition::text of a communicator that is made and had no operation of all ranks yet.
inline constexpr std::string_view kNoOperation = "nothing";

// Where a rank is, by its own word.
struct NcclPosition {
    // Operations of all ranks since the communicator was made: what two ranks send each other is
    // not counted, since the others have no part in it.
    std::int64_t called = 0;
    std::int64_t done = 0;  // by the GPU, of all kinds
    // NCCL's own error there: 0 = none; remote: it only reports another rank.
    std::int32_t error = 0;
    bool remote = false;
    std::string text;  // the last operation of all ranks, or the error

    std::string encode() const;
    static std::optional<NcclPosition> decode(std::string_view text);
};

// Who it is, and in words. No culprits: nobody can be told apart.
struct NcclVerdict {
    std::string text;
    std::vector<std::int32_t> culprits;
};

// Of rank `root`, which makes the id or says which one it has, and did not come. `why`: how that
// showed.
NcclVerdict missing_root(std::int32_t root, const std::string& why);

// By index of the rank; nothing = it did not say. `alarm`: what was noticed first, and by whom.
// `names`: what the ranks are called, in the words and as culprits; empty: by their index. In this
// order: a rank with an error of its own; ranks that are silent; ranks that have called less
// than the others; ranks whose last call differs; otherwise nobody can be told apart.
NcclVerdict verdict(const std::vector<std::optional<NcclPosition>>& ranks, std::string_view alarm,
                    std::span<const std::int32_t> names = {});

}  // namespace lockstep
