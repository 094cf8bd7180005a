// Whatever an agent sends is read the same, however its bytes arrive, and within the memory that a
// message may have. The first byte of the input says how it is cut.
#include "tests/support/read_frames.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t kMost = 1000;  // bytes of a message
    if (size < 2) {
        return 0;
    }
    const std::string bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
    const auto whole = lockstep::test::read_frames(bytes, bytes.size(), kMost);
    for (const std::size_t piece : {std::max<std::size_t>(data[0], 1), std::size_t{1}}) {
        const auto cut = lockstep::test::read_frames(bytes, piece, kMost);
        // A string's memory doubles, and there are two: of fragments and of a frame not come whole.
        if (cut.all != whole.all || cut.most_payload > kMost || cut.most_kept > 8 * kMost) {
            std::abort();
        }
    }
    return 0;
}
