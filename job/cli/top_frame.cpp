// size: the columns, header lines and footer lines of one screen
// TopView: how it is drawn.
#include "job/cli/manual.hpp"
#include "job/cli/times.hpp"
#include "job/cli/top_view.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cli {
namespace {

constexpr std::size_t kNodeWidest = 24;

struct Piece {
    std::string text;
    int weight = 0;  // the lighter goes first when there is not enough room
};

// The heaviest pieces that fit, in the order they are given in.
std::string pack(const Terminal& terminal, const std::vector<Piece>& pieces) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (!pieces[i].text.empty()) {
            order.push_back(i);
        }
    }
    std::sort(order.begin(), order.end(), [&pieces](std::size_t a, std::size_t b) {
        return pieces[a].weight != pieces[b].weight ? pieces[a].weight > pieces[b].weight : a < b;
    });
    std::vector<bool> taken(pieces.size());
    std::size_t used = 0;
    for (const std::size_t i : order) {
        const std::size_t width = visible_width(pieces[i].text) + (used == 0 ? 0 : 2);
        if (used + width <= terminal.width || used == 0) {
            taken[i] = true;
            used += width;
        }
    }
    std::string out;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (taken[i]) {
            out.append(out.empty() ? "" : "  ").append(pieces[i].text);
        }
    }
    return out;
}

std::string whole(const std::optional<std::int64_t>& value) {
    return value ? std::to_string(*value) : "-";
}
std::string value_or_dash(const std::optional<double>& value) {
    return value ? format_value(*value) : "-";
}
std::string time_or_dash(const std::optional<double>& value) {
    return value ? format_seconds(*value) : "-";
}
std::string with_unit(const std::optional<double>& value, double scale, const char* unit) {
    return value ? std::to_string(std::llround(*value * scale)) + unit : "-";
}
// A value that is not negative: "0.4".
std::string in_tenths(double value) {
    const auto tenths = std::llround(value * 10);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}
std::string memory_text(const std::optional<double>& bytes) {
    if (!bytes) {
        return "-";
    }
    const double gibibytes = *bytes / (1U << 30U);
    return (gibibytes < 100 ? in_tenths(gibibytes) : std::to_string(std::llround(gibibytes))) +
           " GiB";
}
// Short: a report that is older than some seconds is what counts.
std::string age_text(const std::optional<double>& seconds) {
    if (!seconds || !std::isfinite(*seconds) || *seconds < 0) {
        return "-";
    }
    if (*seconds < 100) {
        return (*seconds < 9.95 ? in_tenths(*seconds) : std::to_string(std::llround(*seconds))) +
               " s";
    }
    const long long minutes = std::llround(*seconds) / 60;
    if (minutes < 100) {
        return std::to_string(minutes) + " m";
    }
    return minutes < 6000 ? std::to_string(minutes / 60) + " h"
                          : std::to_string(minutes / 60 / 24) + " d";
}

std::string rank_text(const TopRow& row) {
    return std::to_string(row.rank);
}
std::string node_text(const TopRow& row) {
    return row.node.empty() ? "-" : row.node;
}
std::string step_text(const TopRow& row) {
    return whole(row.step);
}
std::string loss_text(const TopRow& row) {
    return value_or_dash(row.loss);
}
std::string step_time_text(const TopRow& row) {
    return time_or_dash(row.step_seconds);
}
std::string busy_text(const TopRow& row) {
    return time_or_dash(row.busy);
}
std::string wait_text(const TopRow& row) {
    return time_or_dash(row.wait);
}
std::string data_text(const TopRow& row) {
    return time_or_dash(row.data_wait);
}
std::string use_text(const TopRow& row) {
    return with_unit(row.use, 100, " %");
}
std::string gpu_memory_text(const TopRow& row) {
    return memory_text(row.memory_bytes);
}
std::string power_text(const TopRow& row) {
    return with_unit(row.power_watts, 1, " W");
}
std::string report_age_text(const TopRow& row) {
    return age_text(row.age);
}

bool failed(const TopRow& row) {
    return (!row.end.empty() && row.end != "exit 0") || row.state == "lost";
}
bool not_finite(const TopRow& row) {
    return row.loss && !std::isfinite(*row.loss);
}

}  // namespace

struct TopView::Column {
    const char* title;
    std::string (*text)(const TopRow&);
    std::size_t width;
    int weight;     // the lighter goes first when there is not enough room
    int sort = -1;  // the TopSort it shows
    bool right = true;
    bool gpu = false;
};

std::vector<TopView::Column> TopView::columns(const Terminal& terminal,
                                              const TopChoice& choice) const {
    std::size_t node = 4;
    std::size_t rank = 5;
    std::size_t step = 6;
    for (const TopRow& row : rows_) {
        node = std::max(node, std::min(visible_width(row.node), kNodeWidest));
        rank = std::max(rank, rank_text(row).size());
        step = std::max(step, step_text(row).size());
    }
    const auto sorted = [](TopSort sort) { return static_cast<int>(sort); };
    std::vector<Column> out{{"RANK", rank_text, rank, 12, sorted(TopSort::rank)},
                            {"NODE", node_text, node, 8, -1, false},
                            {"STEP", step_text, step, 10, sorted(TopSort::step)},
                            {"LOSS", loss_text, 9, 9, sorted(TopSort::loss)},
                            {"STEP TIME", step_time_text, 9, 6},
                            {"BUSY", busy_text, 8, 11, sorted(TopSort::busy)},
                            {"WAIT", wait_text, 8, 7},
                            {"DATA", data_text, 8, 2},
                            {"GPU", use_text, 5, 5, sorted(TopSort::gpu), true, true},
                            {"MEMORY", gpu_memory_text, 8, 1, -1, true, true},
                            {"POWER", power_text, 6, 3, -1, true, true},
                            {"AGE", report_age_text, 6, 4}};
    if (!gpus_) {
        std::erase_if(out, [](const Column& column) { return column.gpu; });
    }
    for (Column& column : out) {
        if (column.sort == static_cast<int>(choice.sort)) {
            column.weight += 100;  // what it is sorted by is to be seen
        }
    }
    const auto used = [&out] {
        std::size_t sum = 2;  // the mark
        for (const Column& column : out) {
            sum += column.width + 2;
        }
        return sum - 2;
    };
    while (out.size() > 1 && used() > terminal.width) {
        out.erase(std::min_element(out.begin(), out.end(), [](const Column& a, const Column& b) {
            return a.weight < b.weight;
        }));
    }
    return out;
}

std::string TopView::row_line(const Terminal& terminal, const std::vector<Column>& columns,
                              const TopRow& row) const {
    const std::string kind = trouble(row);
    const bool bad = failed(row) || not_finite(row);
    std::string line = failed(row) ? "x " : (bad || !kind.empty()) ? "! " : "  ";
    for (const Column& column : columns) {
        line += (line.size() == 2 ? "" : "  ") +
                fit(terminal, column.text(row), column.width, column.right);
    }
    // Where there is no room for it the mark at the beginning has to do.
    const std::string note = note_of(row);
    constexpr std::size_t kLeast = 6;
    if (!note.empty() &&
        terminal.width >= visible_width(line) + 2 + std::min(visible_width(note), kLeast)) {
        line += "  " + note;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    line = cut(terminal, line, terminal.width);
    if (bad || !kind.empty()) {
        return paint(terminal, bad ? Style::red : Style::yellow, line);
    }
    return row.step || row.state == "running" ? line : paint(terminal, Style::dim, line);
}

std::vector<std::string> TopView::head(const Terminal& terminal, const TopChoice& choice) const {
    std::string step = step_ && *step_ >= 0 ? "step " + std::to_string(*step_) : "";
    std::string share;
    if (step_ && *step_ >= 0 && total_steps_ && *total_steps_ > 0) {
        step += "/" + std::to_string(*total_steps_);
        const double done = static_cast<double>(*step_) / static_cast<double>(*total_steps_);
        share = std::to_string(static_cast<int>(100 * std::min(done, 1.0))) + " %";
    }
    const std::size_t name = std::max<std::size_t>(terminal.width / 3, 8);
    std::vector<std::string> lines{
        pack(terminal, {{paint(terminal, Style::bold, cut(terminal, name_, name)), 9},
                        {paint(terminal, state_style(state_), state_), 10},
                        {step, 8},
                        {share, 6},
                        {run_seconds_ ? format_clock(*run_seconds_) : "", 7},
                        {paint(terminal, Style::dim, id_), 5}})};
    const std::string total = std::to_string(total_);
    const std::string ranks =
        reporting_ ? std::to_string(*reporting_) + "/" + total + " reporting" : total + " ranks";
    const auto count = [](std::int64_t number, const char* one) {
        return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
    };
    std::string anomalies =
        std::to_string(anomalies_total_) + (anomalies_total_ == 1 ? " anomaly" : " anomalies");
    anomalies = anomalies_total_ == 0 ? "" : paint(terminal, Style::yellow, anomalies);
    const bool late = choice.age >= 10 && !choice.paused && !is_final_state(state_);
    lines.push_back(
        pack(terminal,
             {{choice.paused ? paint(terminal, Style::yellow, "paused") : "", 10},
              {ranks, 7},
              {paint(terminal, Style::yellow, smaller_), 8},
              {samples_per_second_ ? format_value(*samples_per_second_) + " samples/s" : "", 6},
              {ettr_ ? "ETTR " + in_tenths(100 * std::clamp(*ettr_, 0.0, 1.0)) + " %" : "", 4},
              {count(restarts_, "restart"), 5},
              {anomalies, 8},
              {paint(terminal, late ? Style::yellow : Style::plain, age_text(choice.age) + " old"),
               9}}));
    if (!choice.note.empty()) {
        lines.push_back(paint(terminal, Style::yellow, choice.note));
    }
    if (!pending_.empty()) {
        lines.push_back(paint(terminal, Style::yellow, "pending: " + pending_));
    } else if (!cause_.empty() && state_ != "succeeded") {
        lines.push_back(paint(terminal, Style::red, cause_));
    } else if (!hang_.empty()) {  // it may be no rank's, which would have a mark
        lines.push_back(paint(terminal, Style::yellow, "HANGS  " + hang_));
    } else if (!desync_.empty()) {
        lines.push_back(paint(terminal, Style::yellow, "WAITED FOR  " + desync_));
    } else if (lacks_loss_) {
        for (const std::string& line : wrapped(kLossHint, terminal.width)) {
            lines.push_back(paint(terminal, Style::yellow, line));
        }
    }
    return lines;
}

std::string TopView::anomaly_line(const Terminal& terminal, const TopAnomaly& anomaly) const {
    const bool local = terminal.interactive && anomaly.at != 0;
    std::string line = "! " + (local ? local_clock(anomaly.at) : anomaly.time);
    line += "  " + anomaly.kind;
    if (anomaly.kind != "slow_node" && anomaly.rank && *anomaly.rank >= 0) {
        line += "  rank " + std::to_string(*anomaly.rank);
    }
    line += anomaly.node.empty() ? "" : "  on " + anomaly.node;
    line += anomaly.step && *anomaly.step >= 0 ? "  step " + std::to_string(*anomaly.step) : "";
    line += anomaly.message.empty() ? "" : "  " + anomaly.message;
    const bool bad = anomaly.kind == "nonfinite";
    return paint(terminal, bad ? Style::red : Style::yellow,
                 terminal.interactive ? cut(terminal, line, terminal.width) : line);
}

// The newest first; on a small screen one.
std::vector<std::string> TopView::last_anomalies(const Terminal& terminal) const {
    const std::size_t most = terminal.height < 8 ? 0 : terminal.height < 20 ? 1 : 3;
    std::vector<std::string> lines;
    for (auto one = anomalies_.rbegin(); one != anomalies_.rend() && lines.size() < most; ++one) {
        lines.push_back(anomaly_line(terminal, *one));
    }
    return lines;
}

std::size_t TopView::page(const Terminal& terminal, const TopChoice& choice) const {
    const std::size_t rest =
        head(terminal, choice).size() + 1 + last_anomalies(terminal).size() + 1;
    return terminal.height > rest ? terminal.height - rest : 1;
}

std::size_t TopView::clamp(std::size_t first, const Terminal& terminal,
                           const TopChoice& choice) const {
    const std::size_t rows = page(terminal, choice);
    return std::min(first, total_ > rows ? total_ - rows : 0);
}

std::string TopView::foot(const Terminal& terminal, const TopChoice& choice,
                          std::size_t shown) const {
    const std::string places = total_ == 0 ? "no ranks yet"
                                           : std::to_string(choice.first + 1) + "-" +
                                                 std::to_string(choice.first + shown) + " of " +
                                                 std::to_string(total_);
    const std::string sort{kTopSorts.at(static_cast<std::size_t>(choice.sort))};
    const std::string keys = pack(terminal, {{"q quit", 6},
                                             {"s sort: " + sort, 7},
                                             {"r reverse", 2},
                                             {choice.paused ? "space go on" : "space pause", 4},
                                             {terminal.unicode ? "↑↓ scroll" : "arrows scroll", 3},
                                             {"? help", 5},
                                             {places, 8}});
    return paint(terminal, Style::dim, keys);
}

namespace {

std::vector<std::string> help_lines() {
    return {"q           quit",
            "s           sort by the next of busy, loss, step, gpu, rank",
            "r           reverse the order",
            "space       pause, resume",
            "up, down    one rank (k, j)",
            "PgUp, PgDn  one screen (b, f)",
            "Home, End   the first, the last rank (g, G)",
            "?           this; any key goes back",
            "",
            "busy = step time - wait - data: in step with the others the slow rank",
            "waits least. wait: for the other ranks; data: for the next batch.",
            "GPU, memory, power: mean use and sums of the rank's GPUs.",
            "! an anomaly of the last 10 minutes, a hang, a loss not finite",
            "x the rank has failed or is lost"};
}

}  // namespace

std::vector<std::string> TopView::frame(const Terminal& terminal, const TopChoice& wanted) const {
    TopChoice choice = wanted;
    choice.first = clamp(wanted.first, terminal, wanted);
    std::vector<std::string> lines = head(terminal, choice);
    const std::size_t rows = page(terminal, choice);
    std::size_t shown = 0;
    if (choice.help) {
        const std::vector<std::string> help = help_lines();
        lines.emplace_back();
        for (std::size_t i = 0; i < std::min(rows, help.size()); ++i) {
            lines.push_back("  " + help[i]);
        }
    } else {
        const std::vector<Column> shown_columns = columns(terminal, choice);
        std::string titles = "  ";
        for (const Column& column : shown_columns) {
            const bool sorted = column.sort == static_cast<int>(choice.sort);
            const bool down = sort_query(choice).starts_with("sort=-");
            const std::string mark = !sorted            ? ""
                                     : terminal.unicode ? (down ? "▼" : "▲")
                                                        : (down ? "v" : "^");
            titles += (titles.size() == 2 ? "" : "  ") +
                      fit(terminal, column.title + mark, column.width, column.right);
        }
        lines.push_back(paint(terminal, Style::bold, titles));
        for (std::size_t place = choice.first; place < choice.first + rows; ++place) {
            if (place >= total_) {
                break;
            }
            ++shown;
            const bool here = place >= offset_ && place - offset_ < rows_.size();
            lines.push_back(here ? row_line(terminal, shown_columns, rows_[place - offset_]) : "");
        }
    }
    const std::vector<std::string> below = last_anomalies(terminal);
    const std::size_t end =
        terminal.height > below.size() + 1 ? terminal.height - below.size() - 1 : terminal.height;
    lines.resize(end);
    lines.insert(lines.end(), below.begin(), below.end());
    lines.push_back(choice.help ? paint(terminal, Style::dim, "any key goes back")
                                : foot(terminal, choice, shown));
    lines.resize(terminal.height);
    for (std::string& line : lines) {
        line = cut(terminal, spelled(terminal, line), terminal.width);
    }
    return lines;
}

std::vector<std::string> TopView::table(const Terminal& terminal) const {
    Terminal roomy = terminal;
    if (!terminal.interactive) {
        roomy.width = 1000;  // in a pipe nothing is cut
    }
    TopChoice choice;
    std::vector<std::string> lines = head(roomy, choice);
    std::vector<Table::Column> titles{{"", false, false}};
    const std::vector<Column> shown = columns(roomy, choice);
    for (const Column& column : shown) {
        titles.push_back({column.title, column.right, false});
    }
    titles.push_back({"NOTE", false, true});
    Table table(std::move(titles));
    for (const TopRow& row : rows_) {
        const bool marked = not_finite(row) || !trouble(row).empty();
        std::vector<std::string> cells{failed(row) ? "x" : marked ? "!" : ""};
        for (const Column& column : shown) {
            cells.push_back(column.text(row));
        }
        cells.push_back(note_of(row));
        table.row(std::move(cells));
    }
    for (std::string& line : table.lines(terminal)) {
        lines.push_back(std::move(line));
    }
    constexpr std::size_t kTold = 8;
    const std::size_t skipped = anomalies_.size() > kTold ? anomalies_.size() - kTold : 0;
    for (std::size_t i = skipped; i < anomalies_.size(); ++i) {
        lines.push_back(anomaly_line(roomy, anomalies_[i]));
    }
    for (std::string& line : lines) {
        line = spelled(terminal, line);
    }
    return lines;
}

}  // namespace lockstep::cli
