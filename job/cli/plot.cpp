#include "job/cli/plot.hpp"

#include "job/cli/canvas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

namespace lockstep::cli {
namespace {

constexpr std::array kColours{Style::cyan, Style::yellow, Style::green, Style::magenta};
static_assert(kColours.size() >= kPlotLines);

bool drawable(const PlotPoint& point) {
    return std::isfinite(point.low) && std::isfinite(point.high) && std::isfinite(point.x);
}

// Whether something breaks the line between two x; `breaks` ascends.
bool broken(const std::vector<double>& breaks, double from, double to) {
    const auto next = std::upper_bound(breaks.begin(), breaks.end(), from);
    return next != breaks.end() && *next <= to;
}

std::vector<double> sorted(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values;
}

void draw_line(Canvas& canvas, const PlotLine& line, std::size_t ink, const Range& x,
               const Range& y, const std::vector<double>& restarts) {
    const PlotPoint* last = nullptr;
    const std::vector<double> nonfinite = sorted(line.nonfinite);
    for (const PlotPoint& point : line.points) {
        if (!drawable(point)) {
            last = nullptr;  // a gap is a gap
            continue;
        }
        const std::size_t here = x.place(point.x, canvas.width());
        const std::size_t low = y.place(point.low, canvas.height());
        const std::size_t high = y.place(point.high, canvas.height());
        if (last != nullptr && !broken(restarts, last->x, point.x) &&
            !broken(nonfinite, last->x, point.x)) {
            const double value = std::isfinite(last->last) ? last->last : last->high;
            const std::size_t from = y.place(value, canvas.height());
            canvas.stroke(x.place(last->x, canvas.width()), from, here, std::clamp(from, low, high),
                          ink);
        }
        canvas.stroke(here, low, here, high, ink);
        last = &point;
    }
}

// What all lines have in one column of dots.
struct Slice {
    double x = 0;
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    std::vector<double> values;
    double median() {
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        return values.size() % 2 == 1 ? *middle
                                      : (*std::max_element(values.begin(), middle) + *middle) / 2;
    }
};

// Ink 0 is the band, ink 1 the median.
void draw_band(Canvas& canvas, const std::vector<PlotLine>& lines, const Range& x, const Range& y,
               const std::vector<double>& restarts) {
    std::map<std::size_t, Slice> slices;
    for (const PlotLine& line : lines) {
        for (const PlotPoint& point : line.points) {
            if (drawable(point)) {
                Slice& slice = slices[x.place(point.x, canvas.width())];
                slice.x = point.x;
                slice.low = std::min(slice.low, point.low);
                slice.high = std::max(slice.high, point.high);
                slice.values.push_back(std::isfinite(point.last) ? point.last : point.high);
            }
        }
    }
    struct Column {
        std::size_t at, low, high, median;
        double x;
    };
    std::vector<Column> columns;
    columns.reserve(slices.size());
    for (auto& [at, slice] : slices) {
        columns.push_back({at, y.place(slice.low, canvas.height()),
                           y.place(slice.high, canvas.height()),
                           y.place(slice.median(), canvas.height()), slice.x});
    }
    const auto joined = [&](std::size_t i) {
        return i > 0 && !broken(restarts, columns[i - 1].x, columns[i].x);
    };
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const Column& to = columns[i];
        const Column& from = joined(i) ? columns[i - 1] : to;
        const double across = static_cast<double>(std::max<std::size_t>(to.at - from.at, 1));
        for (std::size_t at = from.at; at <= to.at; ++at) {
            const double share = static_cast<double>(at - from.at) / across;
            const auto between = [share](std::size_t a, std::size_t b) {
                return static_cast<std::size_t>(
                    std::lround(static_cast<double>(a) +
                                share * (static_cast<double>(b) - static_cast<double>(a))));
            };
            const bool end = at == to.at;
            const std::size_t low = end ? to.low : between(from.low, to.low);
            const std::size_t high = end ? to.high : between(from.high, to.high);
            for (std::size_t level = low; level <= high; ++level) {
                // Every second dot inside, so that the median is to be seen; the edges whole.
                if (level == low || level == high || (at + level) % 2 == 0 || canvas.width() < 20) {
                    canvas.dot(at, level, 0);
                }
            }
        }
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const Column& from = joined(i) ? columns[i - 1] : columns[i];
        canvas.stroke(from.at, from.median, columns[i].at, columns[i].median, 1);
    }
}

std::string time_text(double seconds, double span) {
    const auto whole = static_cast<std::time_t>(std::clamp(seconds, -6e10, 2e11));
    std::tm parts{};
    ::gmtime_r(&whole, &parts);
    std::array<char, 32> text{};
    const std::size_t size =
        std::strftime(text.data(), text.size(), span > 86'400 ? "%m-%d %H:%M" : "%H:%M:%S", &parts);
    return {text.data(), size};
}

std::string x_text(const PlotLabels& labels, const Range& x, double value) {
    if (labels.x_is_time) {
        return time_text(value, x.high - x.low);
    }
    // Steps to the last digit.
    const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
    return whole ? std::to_string(static_cast<long long>(value)) : format_value(value);
}

std::string y_text(const PlotLabels& labels, double value) {
    return labels.y_is_time && value >= 0 ? format_seconds(value) : format_value(value);
}

struct Extremes {
    Range range;
    double low_x = 0, high_x = 0;
    std::int32_t low_rank = 0, high_rank = 0;
    std::optional<double> last;
    std::size_t nonfinite = 0;
};

Extremes extremes(const std::vector<PlotLine>& lines) {
    Extremes out;
    for (const PlotLine& line : lines) {
        out.nonfinite += line.nonfinite.size();
        for (const PlotPoint& point : line.points) {
            if (!drawable(point)) {
                continue;
            }
            if (point.low < out.range.low) {
                out.range.low = point.low;
                out.low_x = point.x;
                out.low_rank = line.rank;
            }
            if (point.high > out.range.high) {
                out.range.high = point.high;
                out.high_x = point.x;
                out.high_rank = line.rank;
            }
            out.last = std::isfinite(point.last) ? point.last : out.last;
        }
    }
    return out;
}

// One line of the legend per drawn line; of a band one in all.
std::vector<std::string> legend(const Terminal& terminal, const PlotLabels& labels,
                                const std::vector<PlotLine>& lines, const std::vector<Ink>& inks,
                                bool braille, const Range& x) {
    const auto sample = [&](std::size_t ink) {
        return paint(terminal, inks[ink].colour,
                     braille ? std::string(terminal.unicode ? "━" : "-") : inks[ink].mark);
    };
    std::vector<std::string> out;
    const auto facts = [&](const std::vector<PlotLine>& of, bool name_ranks) {
        const Extremes found = extremes(of);
        const auto where = [&](std::int32_t rank, double at) {
            return (name_ranks ? " (rank " + std::to_string(rank) + ", " : " (") +
                   x_text(labels, x, at) + ")";
        };
        if (found.range.empty()) {
            return std::string("  nothing finite");
        }
        std::string text = "  min " + y_text(labels, found.range.low) +
                           where(found.low_rank, found.low_x) + "  max " +
                           y_text(labels, found.range.high) + where(found.high_rank, found.high_x);
        text += found.last && !name_ranks ? "  last " + y_text(labels, *found.last) : "";
        return text +
               (found.nonfinite > 0 ? "  " + std::to_string(found.nonfinite) + " not finite" : "");
    };
    if (lines.size() > kPlotLines) {
        out.push_back(sample(1) + " median  " + sample(0) + " min to max of " +
                      std::to_string(lines.size()) + " ranks");
        out.push_back(facts(lines, true).substr(2));
        return out;
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
        out.push_back(sample(i) + " rank " + std::to_string(lines[i].rank) +
                      facts({lines[i]}, false));
    }
    return out;
}

std::vector<Ink> make_inks(const Terminal& terminal, std::size_t lines) {
    if (lines > kPlotLines) {
        return {{Style::blue, terminal.unicode ? "░" : ":"},
                {Style::cyan, terminal.unicode ? "█" : "#"}};
    }
    std::vector<Ink> inks;
    inks.reserve(lines);
    for (std::size_t i = 0; i < lines; ++i) {
        inks.push_back({kColours[i], lines == 1 ? "*" : std::to_string(i)});
    }
    return inks;
}

// Under the axis: ! where a value was not finite, R where the ranks were started anew. "" =
// neither.
std::string mark_row(const Terminal& terminal, const PlotLabels& labels,
                     const std::vector<PlotLine>& lines, const Range& x, std::size_t columns) {
    std::vector<char> marks(columns, ' ');
    const auto put = [&](double at, char mark) {
        if (at >= x.low && at <= x.high) {
            marks[x.place(at, columns)] = mark;
        }
    };
    for (const double at : labels.restarts) {
        put(at, 'R');
    }
    for (const PlotLine& line : lines) {
        for (const double at : line.nonfinite) {
            put(at, '!');
        }
    }
    std::string out;
    for (const char mark : marks) {
        out += paint(terminal, mark == '!' ? Style::red : Style::yellow, std::string(1, mark));
    }
    const bool any = std::any_of(marks.begin(), marks.end(), [](char mark) { return mark != ' '; });
    return any ? out : "";
}

}  // namespace

std::string unit_of(const std::string& metric) {
    static const std::array<std::pair<std::string_view, const char*>, 4> kUnits{
        {{"_seconds", "s"}, {"_bytes", "B"}, {"_watts", "W"}, {"_celsius", "C"}}};
    for (const auto& [suffix, unit] : kUnits) {
        if (metric.size() > suffix.size() && metric.ends_with(suffix)) {
            return unit;
        }
    }
    return "";
}

std::vector<std::string> plot(const Terminal& terminal, const PlotLabels& labels,
                              const std::vector<PlotLine>& lines, std::size_t height) {
    Range x;
    Range y;
    for (const PlotLine& line : lines) {
        for (const PlotPoint& point : line.points) {
            x.take(point.x);
            if (drawable(point)) {
                y.take(point.low);
                y.take(point.high);
            }
        }
    }
    if (x.empty() || y.empty() || height < 2) {
        return {};
    }
    // Labels: top, middle, bottom; of a level line the middle says all.
    const bool level = y.high == y.low;
    const std::array<std::string, 3> levels{level ? "" : y_text(labels, y.high),
                                            y_text(labels, y.high / 2 + y.low / 2),
                                            level ? "" : y_text(labels, y.low)};
    std::size_t margin = 0;
    for (const std::string& text : levels) {
        margin = std::max(margin, text.size());
    }
    constexpr std::size_t kLeast = 8;  // columns of canvas; the labels give way before
    margin = terminal.width >= margin + 2 + kLeast ? margin : 0;
    const std::size_t columns = terminal.width > margin + 3 ? terminal.width - margin - 2 : 2;
    const bool braille = terminal.unicode && (terminal.colour || lines.size() == 1);
    const std::vector<Ink> inks = make_inks(terminal, lines.size());
    Canvas canvas(terminal, braille, inks, columns, height);
    const std::vector<double> restarts = sorted(labels.restarts);
    const bool band = lines.size() > kPlotLines;
    if (band) {
        draw_band(canvas, lines, x, y, restarts);
    }
    for (std::size_t i = 0; !band && i < lines.size(); ++i) {
        draw_line(canvas, lines[i], i, x, y, restarts);
    }
    std::vector<std::string> out{paint(terminal, Style::bold, labels.title)};
    const std::string wall = terminal.unicode ? "┤" : "|";
    for (std::size_t row = 0; row < height; ++row) {
        const std::string text = row == 0                  ? levels[0]
                                 : row == height - 1       ? levels[2]
                                 : row == (height - 1) / 2 ? levels[1]
                                                           : "";
        out.push_back(fit(terminal, margin == 0 ? "" : text, margin, true) + " " + wall +
                      canvas.row(row, band ? "" : "*"));
    }
    std::string axis = std::string(margin + 1, ' ') + (terminal.unicode ? "└" : "+");
    for (std::size_t i = 0; i < columns; ++i) {
        axis += terminal.unicode ? "─" : "-";
    }
    out.push_back(axis);
    const std::string indent(margin + 2, ' ');
    if (const std::string marks = mark_row(terminal, labels, lines, x, columns); !marks.empty()) {
        out.push_back(indent + marks);
        out.push_back(paint(terminal, Style::dim, indent + "! not finite   R ranks restarted"));
    }
    const std::string from = x_text(labels, x, x.low);
    const std::string to = x_text(labels, x, x.high);
    const std::size_t used = from.size() + to.size() + labels.x_title.size() + 4;
    const std::string middle = used <= columns ? labels.x_title : "";
    const std::size_t blank = columns - std::min(columns, from.size() + to.size() + middle.size());
    out.push_back(indent + from + std::string(std::max<std::size_t>(blank / 2, 1), ' ') + middle +
                  std::string(blank - std::min(blank, std::max<std::size_t>(blank / 2, 1)), ' ') +
                  to);
    for (std::string& line : legend(terminal, labels, lines, inks, braille, x)) {
        out.push_back(indent + line);
    }
    for (std::string& line : out) {
        line.erase(line.find_last_not_of(' ') + 1);
        line = cut(terminal, spelled(terminal, line), terminal.width);
    }
    return out;
}

}  // namespace lockstep::cli
