// What a FrameReader makes of bytes that arrive in pieces: for its unit tests and for its fuzzer.
#pragma once

#include "daemon/http/base/ws_frames.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::test {

struct Frames {
    struct One {
        ws::FrameReader::Kind kind;
        std::string payload;
        std::uint16_t code;
        bool operator==(const One&) const = default;
    };
    std::vector<One> all;          // the last one may be broken
    std::size_t most_payload = 0;  // bytes
    std::size_t most_kept = 0;     // bytes, between two pieces
};

// `piece` ≥ 1: bytes of each. `most`: what a message may have.
inline Frames read_frames(const std::string& bytes, std::size_t piece, std::size_t most) {
    using Kind = ws::FrameReader::Kind;
    ws::FrameReader reader{most};
    Frames out;
    for (std::size_t at = 0; at < bytes.size(); at += std::min(piece, bytes.size() - at)) {
        std::string part = bytes.substr(at, piece);  // its memory is gone after the round
        reader.feed(part);
        for (auto event = reader.next(); event.kind != Kind::none; event = reader.next()) {
            out.all.push_back({event.kind, std::string{event.payload}, event.code});
            out.most_payload = std::max(out.most_payload, event.payload.size());
            if (event.kind == Kind::broken) {
                return out;
            }
        }
        out.most_kept = std::max(out.most_kept, reader.kept());
    }
    return out;
}

}  // namespace lockstep::test
