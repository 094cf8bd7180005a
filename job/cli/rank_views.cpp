// The ranks of a job for people: their table, and the lines of their series.
#include "job/cli/fields.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::cli {
namespace {

std::string value_text(const Json& object, std::string_view key) {
    const auto value = number_at(object, key);
    return value ? format_value(*value) : "-";
}

std::string duration_text(const Json& object, std::string_view key) {
    const auto value = number_at(object, key);
    return value ? format_seconds(*value) : "-";
}

}  // namespace

std::string rank_end(const Json& rank) {
    if (const auto signal = integer_at(rank, "signal"); signal && *signal > 0) {
        return "signal " + std::to_string(*signal);
    }
    const auto code = integer_at(rank, "exit_code");
    return code && *code >= 0 ? "exit " + std::to_string(*code) : "";
}

// One cell per thing that the rank's GPUs do; several GPUs' are separated by commas.
std::string gpus_text(const Json& rank, std::string_view key, double scale, const char* unit) {
    std::string out;
    for (const Json& gpu : items_at(rank, "gpus")) {
        const Json& value = at(gpu, key);
        const double number = value.is_number() ? value.get<double>() * scale : -1;
        out += out.empty() ? "" : ",";
        out += number < 0 ? "-" : std::to_string(std::llround(number)) + unit;
    }
    return out;
}

bool has_gpus(const Json& ranks) {
    const auto& items = items_at(ranks, "items");
    return std::any_of(items.begin(), items.end(),
                       [](const Json& rank) { return !items_at(rank, "gpus").empty(); });
}

Lines ranks_table(const Terminal& terminal, const Json& ranks) {
    std::vector<Table::Column> columns{{"RANK", true}, {"NODE", false, true}, {"STATE"},
                                       {"STEP", true}, {"LOSS", true},        {"STEP TIME", true},
                                       {"AGE", true},  {"PID", true}};
    const bool gpus = has_gpus(ranks);
    if (gpus) {
        for (const char* title : {"GPU", "USE", "GPU MEM", "POWER", "TEMP"}) {
            columns.push_back({title, true});
        }
    }
    columns.push_back({"END"});
    Table table(std::move(columns));
    for (const Json& rank : items_at(ranks, "items")) {
        const std::string state = text_at(rank, "state");
        std::vector<std::string> cells{integer_text(rank, "rank"),
                                       text_at(rank, "node"),
                                       paint(terminal, state_style(state), state),
                                       integer_text(rank, "step"),
                                       value_text(rank, "loss"),
                                       duration_text(rank, "step_seconds"),
                                       duration_text(rank, "report_age_seconds"),
                                       integer_text(rank, "pid")};
        if (gpus) {
            constexpr double kMebibytes = 1.0 / (1U << 20U);
            cells.push_back(gpus_text(rank, "gpu", 1, ""));
            cells.push_back(gpus_text(rank, "utilization_ratio", 100, "%"));
            cells.push_back(gpus_text(rank, "memory_used_bytes", kMebibytes, "M"));
            cells.push_back(gpus_text(rank, "power_watts", 1, "W"));
            cells.push_back(gpus_text(rank, "temperature_celsius", 1, "C"));
        }
        cells.push_back(rank_end(rank));
        table.row(std::move(cells));
    }
    return table.lines(terminal);
}

std::vector<PlotLine> plot_lines(const Json& series) {
    const auto number = [](const Json& value) {
        return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    };
    std::vector<PlotLine> lines;
    for (const Json& one : items_at(series, "series")) {
        PlotLine line;
        line.rank = static_cast<std::int32_t>(integer_at(one, "rank").value_or(-1));
        // The newest of a point may be none where its list of such values ends.
        for (const Json& value : items_at(one, "nonfinite")) {
            if (value.is_array() && !value.empty() && value[0].is_number()) {
                line.nonfinite.push_back(value[0].get<double>());
            }
        }
        for (const Json& point : items_at(one, "points")) {
            if (point.is_array() && point.size() >= 4) {
                line.points.push_back(
                    {number(point[0]), number(point[1]), number(point[2]), number(point[3])});
                const double x = line.points.back().x;
                if (point[3].is_null() && std::find(line.nonfinite.begin(), line.nonfinite.end(),
                                                    x) == line.nonfinite.end()) {
                    line.nonfinite.push_back(x);
                }
            }
        }
        lines.push_back(std::move(line));
    }
    return lines;
}

}  // namespace lockstep::cli
