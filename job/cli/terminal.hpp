// What the terminal can do, and text made for people: colours, widths, numbers, bars, tables, and
// the block of lines that is drawn again and again. Pure but for Terminal::detect(); the main
// thread.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct Terminal {
    bool interactive = false;  // stdout is a terminal that can move its cursor
    bool asks = false;         // stdin is a terminal: somebody is there to answer
    bool colour = false;
    bool unicode = true;
    std::size_t width = 80;   // columns
    std::size_t height = 24;  // rows

    // Looks at stdin and stdout, TERM, NO_COLOR (https://no-color.org), the locale and COLUMNS.
    static Terminal detect();
    // Asks for the size again: after SIGWINCH.
    void measure();
};

enum class Style { plain, bold, dim, red, green, yellow, blue, magenta, cyan };
std::string paint(const Terminal& terminal, Style style, std::string_view text);
// The colour a job's or rank's state is shown in.
Style state_style(std::string_view state);

// Foreign text without escape sequences, control characters (of one byte or two) and marks that
// turn the direction of what follows; newlines and tabs stay.
std::string harmless(std::string_view text);
// harmless() on one line: newlines and tabs as blanks.
std::string one_line(std::string_view text);
// Whether a terminal shows less of the line than was written: a progress bar goes back to the
// beginning (\r) and draws itself again. A \r at the end alone is that of a line from Windows.
bool is_redrawn(std::string_view line);
// harmless(), and of a line that is_redrawn() what a terminal shows of it in the end: \r goes back
// to its beginning, \b one column, ESC [ K clears; the half of a wide character that is left is a
// blank.
std::string settled(std::string_view line);
// A line that goes on, without what a terminal no longer shows: as much is settled() when the rest
// has come.
std::string compacted(std::string_view line);
// JSON in which such characters are written as \uXXXX: the same values, and no terminal obeys them.
std::string harmless_json(std::string_view json);
// What a terminal without UTF-8 can show: ? for every column of what is no ASCII.
std::string spelled(const Terminal& terminal, std::string_view text);
// Columns the text takes; escape sequences take none, CJK characters two.
std::size_t visible_width(std::string_view text);
// Cut to at most `width` columns; the end is marked when something was cut. Keeps escape sequences.
std::string cut(const Terminal& terminal, std::string_view text, std::size_t width);
// Exactly `width` columns: cut or padded with blanks, on the left when `right` is set.
std::string fit(const Terminal& terminal, std::string_view text, std::size_t width, bool right);

// Four significant digits: 0.5312, 12.35, 3.1e-06, nan.
std::string format_value(double value);
// A time span as people say it: "21.0 ms", "1.25 s", "2 m 05 s".
std::string format_seconds(double seconds);
// "00:01:05" or "2-03:04:05".
std::string format_clock(double seconds);

// `width` columns; non-finite values show as "!".
std::string sparkline(const Terminal& terminal, const std::vector<double>& values,
                      std::size_t width);
// `width` columns; fraction in 0..1.
std::string progress_bar(const Terminal& terminal, double fraction, std::size_t width);

// Rows in columns as wide as their widest cell; when they do not fit, columns marked `shrink` give
// way (in a pipe nothing is ever cut).
class Table {
  public:
    struct Column {
        std::string title;
        bool right = false;
        bool shrink = false;
    };
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    bool empty() const { return rows_.empty(); }
    std::vector<std::string> lines(const Terminal& terminal) const;

  private:
    std::vector<std::size_t> widths(const Terminal& terminal) const;
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

// Lines at the end of the output that are replaced by the next draw(). Only for an interactive
// terminal. What is printed in between goes above them: erase() first. A terminal that was made
// narrower in between has wrapped the lines (as VTE, kitty, tmux and others do): they are counted
// at its new width.
class LiveBlock {
  public:
    LiveBlock(std::ostream& out, const Terminal& terminal) : out_(out), terminal_(terminal) {}
    void draw(const std::vector<std::string>& lines);
    void erase();
    // Leaves the lines where they are.
    void keep() { drawn_.clear(); }

  private:
    std::size_t rows() const;

    std::ostream& out_;
    const Terminal& terminal_;
    std::vector<std::size_t> drawn_;  // columns of each line that stands there
};

}  // namespace lockstep::cli
