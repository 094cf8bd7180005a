// Reads the marks beside a rank's log (job/model/log_marks.hpp): when each line was written, in
// which generation. Blocking on a local file; one thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/log_marks.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class LogTimes {
  public:
    // Of the log at `path`. Where there are no marks every line is without a time.
    static LogTimes open(const std::filesystem::path& path);

    // The last mark at or before the byte; nothing when there is none.
    std::optional<LogMark> at(std::int64_t offset);

    // `text`, which lies at `offset` of the log, each line that begins in it with
    // "2026-11-22T22:30:37.184Z 2 " before it: time and generation, "- - " where they are not
    // known. `begins`: whether its first byte begins a line.
    std::string stamp(std::string_view text, std::int64_t offset, bool begins);

  private:
    explicit LogTimes(UniqueFd fd, std::int64_t rows) : fd_(std::move(fd)), rows_(rows) {}
    LogMark row(std::int64_t number);

    UniqueFd fd_;
    std::int64_t rows_ = 0;
    std::vector<LogMark> block_;  // rows block_begin_ …
    std::int64_t block_begin_ = 0;
};

}  // namespace lockstep
