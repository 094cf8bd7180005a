// What of ranks' logs is printed, and a line that is not complete yet. One thread.
#pragma once

#include "job/cli/context.hpp"
#include "job/cli/log_stream.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// GET …/logs of this rank, and of the attempt that was asked for; without where it begins.
std::string log_target(const Options& options, const std::string& base, std::int32_t rank,
                       bool with_times = false);

// Where a newer attempt begins, to stderr: it is no line of the log.
void say_attempt(Context& context, std::int64_t attempt);

// A line as it is printed: harmless on a terminal, its bytes in a pipe; of one that is_redrawn()
// the end.
std::string printed_line(const Terminal& terminal, std::string_view line);

// The same for a program: `text` of it, and what is known of where it is from.
std::string json_line(const LogLine& line, const std::string& text);

// Lines that are not complete yet, as progress bars are, below all others. They are drawn again as
// they change; only on a terminal.
class UnfinishedLines {
  public:
    explicit UnfinishedLines(Context& context)
        : context_(context), block_(context.out, context.terminal) {}
    // Empty ones are not shown.
    void show(const std::vector<std::string>& lines);
    // Before anything else is printed.
    void hide();

  private:
    Context& context_;
    LiveBlock block_;
    std::vector<std::string> shown_;
};

// Prints one rank's log, from where it left off. What is not complete is held back, so that no
// character is cut in two, and at most so much of it as a terminal still shows.
class LogPrinter {
  public:
    LogPrinter(Context& context, const std::string& base, std::int32_t rank);

    // Everything that is there by now. True when something was new.
    Result<bool> more();
    void hide() { unfinished_.hide(); }
    // The last line, when the log ends without a newline.
    void flush();

  private:
    void take(const std::string& bytes);
    void print(std::string_view lines);
    void end_line();

    Context& context_;
    LogCursor cursor_;
    std::string held_;
    bool begun_ = false;  // a line that was too long to be held has been printed in part
    UnfinishedLines unfinished_;
};

}  // namespace lockstep::cli
