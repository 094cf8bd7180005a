// Notes when a rank's log grew (job/model/log_marks.hpp). Owned by the log's file; one thread at
// a time. What cannot be written is left out: a log without times is still a log.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/unique_fd.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>

namespace lockstep {

class LogMarker {
  public:
    // Marks lie this far apart at least; twice as far after every `kRows` of them, so that the file
    // of a rank that prints all the time grows with the logarithm of its time only.
    static constexpr std::chrono::milliseconds kApart{10};
    static constexpr std::int64_t kRows = 64LL << 10U;

    // Opens or creates the file beside `log`; marks of an earlier generation stay.
    static LogMarker open(const std::filesystem::path& log);

    // The next byte of the log will lie at `offset` and is written now.
    void mark(std::int64_t offset, UnixMillis now, std::int32_t generation);

  private:
    UniqueFd fd_;
    std::int64_t rows_ = 0;
    UnixMillis last_ = 0;
    std::int32_t generation_ = 0;
};

}  // namespace lockstep
