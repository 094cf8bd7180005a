#include "job/cli/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::cli {
namespace {

constexpr std::array kColours{Style::cyan,    Style::yellow, Style::green,
                              Style::magenta, Style::blue,   Style::red};
constexpr std::string_view kMarks = "0123456789abcdefghijklmnopqrstuvwxyz";
// Bit of a braille character for the dot at (column 0..1, row 0..3 from the top).
// Source: Unicode 15, chapter 21.1: U+2800 + dots 1..8.
constexpr std::array<std::array<unsigned, 4>, 2> kDots{
    {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};

struct Range {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    void take(double value) {
        if (std::isfinite(value)) {
            low = std::min(low, value);
            high = std::max(high, value);
        }
    }
    bool empty() const { return low > high; }
    // 0..size-1
    std::size_t place(double value, std::size_t size) const {
        const double share = high > low ? (value - low) / (high - low) : 0.5;
        return static_cast<std::size_t>(std::clamp(share * static_cast<double>(size - 1) + 0.5, 0.0,
                                                   static_cast<double>(size - 1)));
    }
};

// Dots on a grid; each cell of the text is `across` × `down` dots.
class Canvas {
  public:
    Canvas(const Terminal& terminal, std::size_t columns, std::size_t rows)
        : terminal_(terminal),
          braille_(terminal.unicode && terminal.colour),
          columns_(columns),
          rows_(rows),
          cells_(columns * rows) {}

    std::size_t width() const { return braille_ ? columns_ * 2 : columns_; }
    std::size_t height() const { return braille_ ? rows_ * 4 : rows_; }

    // y counts from the bottom.
    void dot(std::size_t x, std::size_t y, std::size_t line) {
        const std::size_t from_top = height() - 1 - y;
        const std::size_t across = braille_ ? 2 : 1;
        const std::size_t down = braille_ ? 4 : 1;
        Cell& cell = cells_[(from_top / down) * columns_ + x / across];
        cell.bits |= braille_ ? kDots[x % 2][from_top % 4] : 1U;
        cell.shared = cell.shared || (cell.line >= 0 && cell.line != static_cast<int>(line));
        cell.line = static_cast<int>(line);
    }
    void stroke(std::size_t x0, std::size_t y0, std::size_t x1, std::size_t y1, std::size_t line) {
        const auto span = [](std::size_t a, std::size_t b) { return a > b ? a - b : b - a; };
        const std::size_t steps = std::max<std::size_t>({span(x0, x1), span(y0, y1), 1});
        for (std::size_t i = 0; i <= steps; ++i) {
            const double share = static_cast<double>(i) / static_cast<double>(steps);
            const auto between = [share](std::size_t a, std::size_t b) {
                return static_cast<std::size_t>(
                    std::lround(static_cast<double>(a) +
                                share * (static_cast<double>(b) - static_cast<double>(a))));
            };
            dot(between(x0, x1), between(y0, y1), line);
        }
    }
    std::string row(std::size_t index) const {
        std::string out;
        for (std::size_t i = 0; i < columns_; ++i) {
            out += text(cells_[index * columns_ + i]);
        }
        return out;
    }

  private:
    struct Cell {
        unsigned bits = 0;
        int line = -1;
        bool shared = false;
    };
    std::string text(const Cell& cell) const {
        if (cell.line < 0) {
            return " ";
        }
        const auto line = static_cast<std::size_t>(cell.line);
        if (!braille_) {
            return std::string(1, cell.shared ? '*' : kMarks[line % kMarks.size()]);
        }
        const unsigned code = 0x2800U + cell.bits;  // three bytes of UTF-8
        const std::string dots{static_cast<char>(0xe0U | (code >> 12U)),
                               static_cast<char>(0x80U | ((code >> 6U) & 0x3fU)),
                               static_cast<char>(0x80U | (code & 0x3fU))};
        return paint(terminal_, kColours[line % kColours.size()], dots);
    }

    const Terminal& terminal_;
    bool braille_;
    std::size_t columns_;
    std::size_t rows_;
    std::vector<Cell> cells_;
};

void draw_line(Canvas& canvas, const PlotLine& line, std::size_t index, const Range& x,
               const Range& y) {
    bool connected = false;
    std::size_t last_x = 0;
    std::size_t last_y = 0;
    for (const PlotPoint& point : line.points) {
        if (!std::isfinite(point.low) || !std::isfinite(point.high) || !std::isfinite(point.x)) {
            connected = false;  // a gap is a gap
            continue;
        }
        const std::size_t here = x.place(point.x, canvas.width());
        const std::size_t low = y.place(point.low, canvas.height());
        const std::size_t high = y.place(point.high, canvas.height());
        const double final_value = std::isfinite(point.last) ? point.last : point.high;
        if (connected) {
            canvas.stroke(last_x, last_y, here, std::clamp(last_y, low, high), index);
        }
        canvas.stroke(here, low, here, high, index);
        last_x = here;
        last_y = y.place(final_value, canvas.height());
        connected = true;
    }
}

std::string legend(const Terminal& terminal, const std::vector<PlotLine>& lines) {
    std::string out = "rank";
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const std::string name = std::to_string(lines[i].rank);
        if (terminal.unicode && terminal.colour) {
            out += "  " + paint(terminal, kColours[i % kColours.size()], "━") + " " + name;
        } else {
            out += std::string("  ") + kMarks[i % kMarks.size()] + "=" + name;
        }
    }
    return out;
}

}  // namespace

std::vector<std::string> plot(const Terminal& terminal, const std::string& title,
                              const std::string& x_title, const std::vector<PlotLine>& lines,
                              std::size_t height) {
    Range x;
    Range y;
    for (const PlotLine& line : lines) {
        for (const PlotPoint& point : line.points) {
            if (std::isfinite(point.low) && std::isfinite(point.high)) {
                x.take(point.x);
                y.take(point.low);
                y.take(point.high);
            }
        }
    }
    if (x.empty() || y.empty() || height < 2) {
        return {};
    }
    // Labels: top, middle, bottom.
    const std::array<std::string, 3> labels{
        format_value(y.high), format_value((y.high + y.low) / 2), format_value(y.low)};
    std::size_t margin = 0;
    for (const std::string& label : labels) {
        margin = std::max(margin, label.size());
    }
    const std::size_t columns = terminal.width > margin + 12 ? terminal.width - margin - 2 : 10;
    Canvas canvas(terminal, columns, height);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        draw_line(canvas, lines[i], i, x, y);
    }
    std::vector<std::string> out{paint(terminal, Style::bold, title)};
    const std::string wall = terminal.unicode ? "┤" : "|";
    for (std::size_t row = 0; row < height; ++row) {
        const std::string label = row == 0                  ? labels[0]
                                  : row == height - 1       ? labels[2]
                                  : row == (height - 1) / 2 ? labels[1]
                                                            : "";
        out.push_back(fit(terminal, label, margin, true) + " " + wall + canvas.row(row));
    }
    std::string axis = std::string(margin + 1, ' ') + (terminal.unicode ? "└" : "+");
    for (std::size_t i = 0; i < columns; ++i) {
        axis += terminal.unicode ? "─" : "-";
    }
    out.push_back(axis);
    const std::string from = format_value(x.low);
    const std::string to = format_value(x.high);
    const std::size_t used = from.size() + to.size() + x_title.size();
    const std::size_t gap = columns > used ? (columns - used) / 2 : 1;
    out.push_back(std::string(margin + 2, ' ') + from + std::string(gap, ' ') + x_title +
                  std::string(columns > used ? columns - used - gap : 1, ' ') + to);
    out.push_back(
        cut(terminal, std::string(margin + 2, ' ') + legend(terminal, lines), terminal.width));
    return out;
}

}  // namespace lockstep::cli
