// When the bytes of a rank's log were written: a file beside it (rank-00003.times for
// rank-00003.log), made by the agent and read by lockstepd. Values only; any thread.
//
// Each mark is 24 bytes, little-endian: offset in the log (int64), time (int64, milliseconds since
// 1970 by the node's clock), generation (int32), 0 (int32). A byte of the log was written at the
// time of the last mark at or before it, or up to the marks' distance later. Offsets never go back.
#pragma once

#include "job/base/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace lockstep {

struct LogMark {
    std::int64_t offset = 0;
    UnixMillis time = 0;
    std::int32_t generation = 0;
    bool operator==(const LogMark&) const = default;
};

inline constexpr std::size_t kLogMarkBytes = 24;

std::array<char, kLogMarkBytes> encode_log_mark(const LogMark& mark);
// Of kLogMarkBytes bytes.
LogMark decode_log_mark(const char* bytes);
// rank-00003.log → rank-00003.times, in the same folder.
std::filesystem::path log_marks_path(std::filesystem::path log);

}  // namespace lockstep
