// Reads the log of one rank as the agent writes it: a file whose middle may have been given back
// (holes), so that offsets stay those of the whole output. Holes are never read as zeros: one line
// says how much is missing. Blocking on a local file, at most limits::kBodyBytes a call; one
// thread.
#pragma once

#include "daemon/http/logs/log_times.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class RankLogReader {
  public:
    // not_found: no such file. denied: a link, or anything but a regular file.
    static Result<RankLogReader> open(const std::string& path);

    // The same of a file some folders below `directory`: no link on the way is followed.
    static Result<RankLogReader> open_below(const std::string& directory,
                                            const std::vector<std::string>& folders,
                                            const std::string& name);

    // Bytes that are not kept, `end` exclusive.
    struct Hole {
        std::int64_t begin = 0;
        std::int64_t end = 0;
        bool operator==(const Hole&) const = default;
    };
    struct Slice {
        std::int64_t offset = 0;  // of the first byte asked for
        std::int64_t next = 0;    // where to go on; == offset at the end
        std::string text;
        std::optional<Hole> dropped{};  // whole, of the first notice in the text
    };
    // From `offset` on, at most `most` bytes of the output and the notices of the holes among them.
    // With `times` each line has its time before it (LogTimes::stamp), which is not counted.
    Result<Slice> read(std::int64_t offset, std::size_t most, LogTimes* times = nullptr) const;
    Result<std::int64_t> size() const;
    // Where the last `lines` lines begin; at most `most` bytes before the end, and behind the last
    // hole. A last line without its newline counts as a line.
    Result<std::int64_t> tail(std::int64_t lines, std::size_t most) const;

  private:
    explicit RankLogReader(UniqueFd fd) : fd_(std::move(fd)) {}
    static Result<RankLogReader> open_at(int folder, const std::string& path);
    // The first byte at or behind `offset` that is kept; `size` when none is.
    std::int64_t next_data(std::int64_t offset, std::int64_t size) const;
    // The first byte behind `offset` that is not kept; `size` when none.
    std::int64_t next_hole(std::int64_t offset, std::int64_t size) const;
    // Where the hole begins that `offset`, a byte which is not kept, is in; at worst `offset`.
    std::int64_t hole_begin(std::int64_t offset, std::int64_t size) const;
    // Whether a line begins at `offset`: the log does, or the byte before is a newline.
    bool begins_line(std::int64_t offset) const;
    Status append(std::string& out, std::int64_t offset, std::size_t bytes) const;

    UniqueFd fd_;
};

// What stands where `bytes` of the output are missing.
std::string dropped_notice(std::int64_t bytes);

}  // namespace lockstep
