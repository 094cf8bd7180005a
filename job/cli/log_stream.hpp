// One rank's log, line by line with times, as `lockstep logs` merges several. Blocks; one thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/cli/client.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cli {

// Which file an answer of GET …/logs is of. Another one has other bytes at the same offset.
struct LogOrigin {
    std::int32_t rank = 0;                // whose output it is: of several ranks their launcher's
    std::optional<std::int64_t> attempt;  // nothing: an older lockstepd, or no file yet
};
// `asked`: the rank that was asked for. `before`: of the answer before.
LogOrigin origin_of(const ClientResponse& answer, std::int32_t asked,
                    const std::optional<LogOrigin>& before);
bool is_other_log(const LogOrigin& before, const LogOrigin& now);

struct LogLine {
    std::optional<UnixMillis> time;  // the node's clock; nothing: not known
    UnixMillis order = 0;            // the time, or that of the line before
    std::int32_t rank = 0;           // that printed it; see LogOrigin
    std::int32_t generation = 0;     // 0: not known
    std::string text;                // without its newline
};

class LogStream {
  public:
    // `tail`: only so many lines from the end; 0 = from the beginning.
    LogStream(const Client& client, const std::string& base, std::int32_t rank, std::int64_t tail);

    // Asks once for what comes next and appends its whole lines. False when there was nothing new.
    // Of a log that another stream gives (`is_given`, by the rank whose output it is) no line is
    // appended. One that has taken the place of the log before is read from its first byte.
    Result<bool> fetch(const std::function<bool(std::int32_t rank)>& is_given);
    // The rank whose output this is: the one that was asked for, until an answer says otherwise.
    std::int32_t rank() const { return origin_ ? origin_->rank : rank_; }
    // Where the next answer is to begin, in bytes; nothing: none was asked for yet.
    std::optional<std::int64_t> offset() const { return offset_; }
    void go_on_at(std::optional<std::int64_t> offset) { offset_ = offset; }
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
    std::optional<LogOrigin> origin_;  // of the newest answer
    std::optional<std::int64_t> offset_;
    std::string held_;
    std::deque<LogLine> lines_;
    UnixMillis last_ = 0;
};

}  // namespace lockstep::cli
