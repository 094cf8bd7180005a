// One rank's log, line by line with times, as `lockstep logs` merges several. Blocks; one thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/cli/client.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cli {

struct LogLine {
    std::optional<UnixMillis> time;  // the node's clock; nothing: not known
    UnixMillis order = 0;            // the time, or that of the line before
    std::int32_t rank = 0;
    std::int32_t generation = 0;  // 0: not known
    std::string text;             // without its newline
};

class LogStream {
  public:
    // `tail`: only so many lines from the end; 0 = from the beginning.
    LogStream(const Client& client, const std::string& base, std::int32_t rank, std::int64_t tail);

    // Asks once for what comes next and appends its whole lines. False when there was nothing new.
    Result<bool> fetch();
    // The last line, when the log ends without a newline.
    void finish();
    // What there is of the line that is not complete.
    std::string unfinished() const;

    bool empty() const { return lines_.empty(); }
    const LogLine& front() const { return lines_.front(); }
    LogLine take();

  private:
    void add(std::string_view stamped);

    const Client& client_;
    std::string target_;
    std::int32_t rank_;
    std::int64_t tail_;
    std::optional<std::int64_t> offset_;
    std::string held_;
    std::deque<LogLine> lines_;
    UnixMillis last_ = 0;
};

}  // namespace lockstep::cli
