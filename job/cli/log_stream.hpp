// One rank's log as `lockstep logs` reads it: piece by piece, or line by line with times, to merge
// several. Blocks; one thread.
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

// How far one rank's log has been read. A log that takes the place of the one before, of a new
// attempt or the rank's own after its launcher's, is read from its first byte; of an attempt first
// what it wrote after it was last asked for. Attempts that began and ended since are read in turn.
class LogCursor {
  public:
    struct Piece {
        std::string text;    // empty: nothing new
        bool other = false;  // no text; what comes now is of another log
        bool more = false;   // the next answer may have more at once
    };
    // `target`: with the query, but for where it begins. `tail`: only so many lines from the end;
    // 0 = from the beginning.
    LogCursor(const Client& client, std::string target, std::int32_t rank, std::int64_t tail);

    // Asks once for what comes next.
    Result<Piece> next();
    // The rank whose output this is: the one that was asked for, until an answer says otherwise.
    std::int32_t rank() const { return origin_ ? origin_->rank : rank_; }
    // Number of the attempt; 0: not known.
    std::int64_t attempt() const { return origin_ ? origin_->attempt.value_or(0) : 0; }
    // There is a later attempt than the one that is read.
    bool is_behind() const { return newer_.has_value(); }
    // Where the next answer is to begin, in bytes; nothing: none was asked for yet.
    std::optional<std::int64_t> offset() const { return offset_; }
    void go_on_at(std::optional<std::int64_t> offset) { offset_ = offset; }

  private:
    // From the attempt that has been read to its end to the next one that started ranks, `newest`
    // at the latest.
    Result<Piece> pass_on(LogOrigin newest);
    Piece go_to(const LogOrigin& other);

    const Client& client_;
    std::string target_;
    std::int32_t rank_;
    std::int64_t tail_;
    std::optional<LogOrigin> origin_;  // of the newest answer
    std::optional<LogOrigin> newer_;   // the newest attempt's, while those before it are read
    std::optional<std::int64_t> offset_;
};

struct LogLine {
    std::optional<UnixMillis> time;  // the node's clock; nothing: not known
    UnixMillis order = 0;            // the time, or that of the line before
    std::int32_t rank = 0;           // that printed it; see LogOrigin
    std::int64_t attempt = 0;        // 0: not known
    std::int32_t generation = 0;     // 0: not known
    std::string text;                // without its newline
};

class LogStream {
  public:
    // `target`, `tail`: as of LogCursor.
    LogStream(const Client& client, const std::string& target, std::int32_t rank,
              std::int64_t tail);

    // Asks once for what comes next and appends its whole lines. False when there was nothing new.
    // Of a log that another stream gives (`is_given`, by the rank whose output it is) no line is
    // appended.
    Result<bool> fetch(const std::function<bool(std::int32_t rank)>& is_given);
    // These as of LogCursor.
    std::int32_t rank() const { return cursor_.rank(); }
    std::optional<std::int64_t> offset() const { return cursor_.offset(); }
    void go_on_at(std::optional<std::int64_t> offset) { cursor_.go_on_at(offset); }
    // The last line, when the log ends without a newline.
    void finish();
    // What there is of the line that is not complete.
    std::string unfinished() const;

    bool empty() const { return lines_.empty(); }
    const LogLine& front() const { return lines_.front(); }
    LogLine take();

  private:
    void add(std::string_view stamped);

    LogCursor cursor_;
    std::string held_;
    std::int32_t held_rank_;  // whose it is
    std::int64_t held_attempt_ = 0;
    std::deque<LogLine> lines_;
    UnixMillis last_ = 0;
};

}  // namespace lockstep::cli
