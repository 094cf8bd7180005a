// Whatever an agent sends is read the same, however its bytes arrive, and within the memory that a
// message may have. The first byte of the input says how it is cut.
#include "daemon/http/ws_frames.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using lockstep::ws::FrameReader;
constexpr std::size_t kMost = 1000;  // bytes of a message

struct Got {
    FrameReader::Kind kind;
    std::string payload;
    std::uint16_t code;
    bool operator==(const Got&) const = default;
};

std::vector<Got> read(const std::string& bytes, std::size_t piece) {
    FrameReader reader{kMost};
    std::vector<Got> out;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        std::string part = bytes.substr(at, piece);  // its memory is gone after the round
        reader.feed(part);
        for (auto event = reader.next(); event.kind != FrameReader::Kind::none;
             event = reader.next()) {
            out.push_back({event.kind, std::string{event.payload}, event.code});
            if (event.payload.size() > kMost) {
                std::abort();
            }
            if (event.kind == FrameReader::Kind::broken) {
                return out;
            }
        }
        if (reader.kept() > 8 * kMost) {
            std::abort();
        }
    }
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) {
        return 0;
    }
    const std::string bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
    const auto whole = read(bytes, bytes.size());
    if (read(bytes, std::max<std::size_t>(data[0], 1)) != whole || read(bytes, 1) != whole) {
        std::abort();
    }
    return 0;
}
