#include "job/cli/terminal.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/text.hpp"
#include "job/cli/glyph.hpp"
#include "job/model/state.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <ostream>

namespace lockstep::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string_view environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view{} : std::string_view{value};
}

// A locale that is named and is not UTF-8 gets ASCII. No locale at all is what containers and
// bare servers have, and the terminal in front of them reads UTF-8 all the same.
bool reads_utf8() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        const std::string_view value = environment(name);
        if (!value.empty()) {
            return value.find("UTF-8") != std::string_view::npos ||
                   value.find("utf8") != std::string_view::npos ||
                   value.find("UTF8") != std::string_view::npos;
        }
    }
    return environment("TERM") != "linux";
}

std::size_t dimension(const char* variable, unsigned short reported, std::size_t fallback) {
    if (reported > 0) {
        return reported;
    }
    const auto wished = to_int(environment(variable));
    return wished && *wished > 0 && *wished < 10'000 ? static_cast<std::size_t>(*wished) : fallback;
}

std::string printf_double(const char* format, double value) {
    std::array<char, 64> buffer{};
    const int length = std::snprintf(buffer.data(), buffer.size(), format, value);
    return {buffer.data(), static_cast<std::size_t>(std::max(length, 0))};
}

// At most `width` values for the whole run: means of neighbours; one that is not finite makes its
// mean so, and shows.
std::vector<double> squeezed(const std::vector<double>& values, std::size_t width) {
    if (values.size() <= width || width == 0) {
        return width == 0 ? std::vector<double>{} : values;
    }
    std::vector<double> out;
    for (std::size_t i = 0; i < width; ++i) {
        const std::size_t begin = i * values.size() / width;
        const std::size_t end = (i + 1) * values.size() / width;
        double sum = 0;
        for (std::size_t at = begin; at < end; ++at) {
            sum += values[at];
        }
        out.push_back(sum / static_cast<double>(end - begin));
    }
    return out;
}

}  // namespace

Terminal Terminal::detect() {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // for wcwidth
    Terminal terminal;
    const std::string_view term = environment("TERM");
    const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
    terminal.interactive = is_terminal && !term.empty() && term != "dumb";
    terminal.asks = ::isatty(STDIN_FILENO) == 1;
    terminal.colour = terminal.interactive && environment("NO_COLOR").empty();
    terminal.unicode = reads_utf8();
    terminal.measure();
    return terminal;
}

void Terminal::measure() {
    winsize size{};
    if (::isatty(STDOUT_FILENO) == 1) {
        ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    }
    width = dimension("COLUMNS", size.ws_col, 80);
    height = dimension("LINES", size.ws_row, 24);
}

std::string paint(const Terminal& terminal, Style style, std::string_view text) {
    static constexpr std::array<const char*, 9> kCodes{"0",  "1",  "2",  "31", "32",
                                                       "33", "34", "35", "36"};
    static_assert(names_all_of<Style>(kCodes));
    if (!terminal.colour || style == Style::plain || text.empty()) {
        return std::string(text);
    }
    return std::string("\x1b[") + kCodes.at(static_cast<std::size_t>(style)) + "m" +
           std::string(text) + "\x1b[0m";
}

Style state_style(std::string_view state) {
    if (const auto of_job = parse_job_state(state)) {
        switch (row_of(*of_job).tone) {
            case StateTone::good:
                return Style::green;
            case StateTone::bad:
                return Style::red;
            case StateTone::disturbed:
                return Style::yellow;
            case StateTone::waits:
                return Style::cyan;
        }
    }
    // Of ranks and nodes only.
    return state == "lost" ? Style::red : state == "stopped" ? Style::yellow : Style::cyan;
}

std::size_t visible_width(std::string_view text) {
    std::size_t columns = 0;
    for (std::size_t at = 0; at < text.size();) {
        const Glyph glyph = glyph_at(text, at);
        columns += glyph.columns;
        at += glyph.bytes;
    }
    return columns;
}

std::string cut(const Terminal& terminal, std::string_view text, std::size_t width) {
    if (visible_width(text) <= width) {
        return std::string(text);
    }
    std::string out;
    std::size_t columns = 0;
    bool coloured = false;
    for (std::size_t at = 0; at < text.size();) {
        const Glyph glyph = glyph_at(text, at);
        if (columns + glyph.columns + 1 > width) {
            break;
        }
        coloured = coloured || glyph.kind == Glyph::Kind::sequence;
        out += text.substr(at, glyph.bytes);
        columns += glyph.columns;
        at += glyph.bytes;
    }
    if (width > 0) {
        out += terminal.unicode ? "…" : "~";
    }
    return coloured ? out + "\x1b[0m" : out;
}

std::string fit(const Terminal& terminal, std::string_view text, std::size_t width, bool right) {
    std::string out = cut(terminal, text, width);
    const std::size_t columns = visible_width(out);
    const std::string blanks(width - std::min(width, columns), ' ');
    return right ? blanks + out : out + blanks;
}

std::string format_value(double value) {
    if (!std::isfinite(value)) {
        return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
    const double size = std::abs(value);
    if (value == 0) {
        return "0";
    }
    if (size >= 1e6 || size < 1e-4) {
        return printf_double("%.2e", value);
    }
    if (value == std::floor(value)) {
        return printf_double("%.0f", value);
    }
    return printf_double(size >= 1000  ? "%.0f"
                         : size >= 100 ? "%.1f"
                         : size >= 10  ? "%.2f"
                                       : "%.4f",
                         value);
}

std::string format_seconds(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) {
        return "-";
    }
    if (seconds < 0.001) {
        return printf_double("%.0f us", seconds * 1e6);
    }
    if (seconds < 1) {
        return printf_double("%.1f ms", seconds * 1e3);
    }
    if (seconds < 60) {
        return printf_double("%.2f s", seconds);
    }
    return format_clock(seconds);
}

std::string format_clock(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) {
        return "--:--:--";
    }
    const auto whole = static_cast<long long>(std::min(seconds, 1e12));
    std::array<char, 64> buffer{};
    int length = std::snprintf(buffer.data(), buffer.size(), "%02lld:%02lld:%02lld",
                               whole / 3600 % 24, whole / 60 % 60, whole % 60);
    std::string clock(buffer.data(), static_cast<std::size_t>(length));
    return whole >= 86'400 ? std::to_string(whole / 86'400) + "-" + clock : clock;
}

std::string sparkline(const Terminal& terminal, const std::vector<double>& values,
                      std::size_t width) {
    static constexpr std::array<const char*, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static constexpr std::array<const char*, 8> kAscii{"_", "_", ".", ".", "-", "-", "=", "^"};
    const std::vector<double> shown = squeezed(values, width);
    double low = kInfinity;
    double high = -kInfinity;
    for (const double value : shown) {
        if (std::isfinite(value)) {
            low = std::min(low, value);
            high = std::max(high, value);
        }
    }
    std::string out;
    for (const double value : shown) {
        if (!std::isfinite(value)) {
            out += "!";
            continue;
        }
        const double place = high > low ? (value - low) / (high - low) : 0.5;
        const auto level = static_cast<std::size_t>(std::clamp(place * 7.999, 0.0, 7.0));
        out += terminal.unicode ? kBlocks.at(level) : kAscii.at(level);
    }
    out.append(width - shown.size(), ' ');
    return out;
}

std::string progress_bar(const Terminal& terminal, double fraction, std::size_t width) {
    static constexpr std::array<const char*, 8> kParts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const double clean = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
    const auto eighths = static_cast<std::size_t>(clean * static_cast<double>(width) * 8.0);
    std::string out;
    for (std::size_t i = 0; i < eighths / 8; ++i) {
        out += terminal.unicode ? "█" : "#";
    }
    std::size_t columns = eighths / 8;
    if (terminal.unicode && eighths % 8 != 0) {
        out += kParts.at(eighths % 8);
        ++columns;
    }
    for (; columns < width; ++columns) {
        out += terminal.unicode ? "░" : ".";
    }
    return out;
}

std::vector<std::size_t> Table::widths(const Terminal& terminal) const {
    std::vector<std::size_t> widths;
    std::size_t total = 2 * (columns_.empty() ? 0 : columns_.size() - 1);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        std::size_t widest = visible_width(columns_[i].title);
        for (const auto& row : rows_) {
            widest = std::max(widest, visible_width(row.at(i)));
        }
        widths.push_back(widest);
        total += widest;
    }
    for (std::size_t i = 0; terminal.interactive && i < columns_.size(); ++i) {
        if (columns_[i].shrink && total > terminal.width) {
            const std::size_t least = std::max<std::size_t>(visible_width(columns_[i].title), 6);
            const std::size_t give =
                std::min(total - terminal.width, widths[i] > least ? widths[i] - least : 0);
            widths[i] -= give;
            total -= give;
        }
    }
    return widths;
}

std::vector<std::string> Table::lines(const Terminal& terminal) const {
    const std::vector<std::size_t> wide = widths(terminal);
    const auto line = [&](const auto& cell) {
        std::string out;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            out += (i == 0 ? "" : "  ") + fit(terminal, cell(i), wide[i], columns_[i].right);
        }
        out.erase(out.find_last_not_of(' ') + 1);
        return terminal.interactive ? cut(terminal, out, terminal.width) : out;
    };
    std::vector<std::string> out;
    out.push_back(
        paint(terminal, Style::bold, line([this](std::size_t i) { return columns_[i].title; })));
    for (const auto& row : rows_) {
        out.push_back(line([&row](std::size_t i) { return row[i]; }));
    }
    return out;
}

std::size_t LiveBlock::rows() const {
    const std::size_t width = std::max<std::size_t>(terminal_.width, 1);
    std::size_t rows = 0;
    for (const std::size_t columns : drawn_) {
        rows += columns <= width ? 1 : (columns + width - 1) / width;
    }
    return rows;
}

void LiveBlock::draw(const std::vector<std::string>& lines) {
    // One write: the cursor goes up, each line is replaced and its rest cleared, what is left of a
    // longer block before is cleared too. Lines are cut to the width of now, so none wraps.
    std::string text;
    if (const std::size_t up = rows(); up > 0) {
        text += "\x1b[" + std::to_string(up) + "A\r";
    }
    const std::size_t room = terminal_.height > 1 ? terminal_.height - 1 : 1;
    drawn_.clear();
    for (std::size_t i = 0; i < std::min(lines.size(), room); ++i) {
        const std::string line = cut(terminal_, lines[i], terminal_.width);
        drawn_.push_back(visible_width(line));
        text += line + "\x1b[K\n";
    }
    out_ << text << "\x1b[J" << std::flush;
}

void LiveBlock::erase() {
    if (const std::size_t up = rows(); up > 0) {
        out_ << "\x1b[" << up << "A\r\x1b[J" << std::flush;
    }
    drawn_.clear();
}

}  // namespace lockstep::cli
