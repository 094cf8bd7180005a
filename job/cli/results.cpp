#include "job/cli/results.hpp"

#include "job/base/sort.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/job_names.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace lockstep::cli {
namespace {

std::string optional_loss(const std::optional<double>& value) {
    return value ? format_value(*value) : "-";
}

std::string last_text(const Reached& reached) {
    return reached.nonfinite.empty() ? optional_loss(reached.last) : reached.nonfinite;
}

// What the newest of the values is that the daemon has kept; it keeps the first ones only.
std::string nonfinite_word(const Json& rank) {
    const Json& kept = items_at(rank, "nonfinite");
    const Json& newest = kept.empty() ? kept : kept.back();
    const bool word = newest.is_array() && newest.size() >= 2 && newest[1].is_string();
    const std::string text = word ? one_line(newest[1].get<std::string>()) : "nan";
    return text == "nan" ? "NaN" : text;
}

// The x of the first value of the end of the line, which has nothing finite; none where a point
// holds both, or the daemon has not kept the value.
std::optional<double> nonfinite_since(const PlotLine& line, const Json& rank) {
    double finite = -std::numeric_limits<double>::infinity();
    bool mixed = false;
    for (const PlotPoint& point : line.points) {
        if (std::isfinite(point.last)) {
            finite = point.x;
            mixed = false;
        } else {
            mixed = mixed || std::isfinite(point.low);
        }
    }
    std::optional<double> since;
    for (const Json& value : items_at(rank, "nonfinite")) {
        if (value.is_array() && !value.empty() && value[0].is_number() &&
            value[0].get<double>() > finite) {
            const auto x = value[0].get<double>();
            since = std::min(x, since.value_or(x));
        }
    }
    return mixed ? std::nullopt : since;
}

std::string parameter_text(const Json& job, const std::string& name) {
    const Json& value = at(at(at(job, "sweep"), "parameters"), name);
    if (value.is_null()) {
        return "-";
    }
    return one_line(value.is_string() ? value.get_ref<const std::string&>() : dump_json(value));
}

// Of the paths: train.learning_rate is learning_rate, unless another parameter ends so too.
std::string parameter_title(const std::string& path, const std::vector<std::string>& all) {
    const std::string last = path.substr(path.rfind('.') + 1);
    const auto same = std::count_if(all.begin(), all.end(), [&last](const std::string& other) {
        return other.substr(other.rfind('.') + 1) == last;
    });
    const bool number = last.find_first_not_of("0123456789") == std::string::npos;
    return one_line(same > 1 || number ? path : last);
}

}  // namespace

Reached reached(const Json& series) {
    Reached out;
    const auto lines = plot_lines(series);
    if (lines.empty()) {
        return out;
    }
    for (const PlotPoint& point : lines.front().points) {
        if (std::isfinite(point.last)) {
            out.last = point.last;
        }
        if (std::isfinite(point.low)) {
            out.lowest = std::min(point.low, out.lowest.value_or(point.low));
        }
        if (std::isfinite(point.high)) {
            out.highest = std::max(point.high, out.highest.value_or(point.high));
        }
    }
    // A point's newest value is none where it is not finite.
    if (!lines.front().points.empty() && !std::isfinite(lines.front().points.back().last)) {
        const Json& rank = items_at(series, "series").front();
        out.nonfinite = nonfinite_word(rank);
        out.nonfinite_from = nonfinite_since(lines.front(), rank);
    }
    return out;
}

std::vector<std::string> metrics_of_interest(const Json& metrics) {
    std::vector<std::string> out;
    const auto take = [&](auto&& wanted) {
        for (const Json& item : items_at(metrics, "items")) {
            const std::string name = item.is_string() ? item.get<std::string>() : "";
            const bool there = std::find(out.begin(), out.end(), name) != out.end();
            if (!name.empty() && !there && out.size() < limits::kSweepMeasuresShown &&
                wanted(name)) {
                out.push_back(name);
            }
        }
    };
    const auto has = [](const std::string& name, std::string_view part) {
        return name.find(part) != std::string::npos;
    };
    take([](const std::string& name) { return name == "loss"; });
    take([&has](const std::string& name) { return has(name, "loss") && name != "loss_scale"; });
    take([&has](const std::string& name) { return has(name, "acc"); });
    take([](const std::string& name) { return name == "perplexity" || name == "mfu"; });
    return out;
}

std::vector<std::string> results_view(const Terminal& terminal,
                                      const std::vector<FinalValue>& values) {
    std::vector<std::string> lines;
    for (const FinalValue& value : values) {
        if (!value.reached.last && value.reached.nonfinite.empty()) {
            continue;
        }
        const bool falls =
            value.metric.find("loss") != std::string::npos || value.metric == "perplexity";
        const auto& best = falls ? value.reached.lowest : value.reached.highest;
        std::string text = last_text(value.reached);
        const bool odd = !value.reached.nonfinite.empty();
        if (value.reached.nonfinite_from) {
            text += " since step " +
                    std::to_string(static_cast<std::int64_t>(*value.reached.nonfinite_from));
        }
        if (odd) {
            text = paint(terminal, Style::red, text);
        }
        if (best && (odd || best != value.reached.last)) {
            text += std::string(falls ? ", lowest " : ", highest ") + format_value(*best);
        }
        lines.push_back(
            paint(terminal, Style::dim, fit(terminal, one_line(value.metric), kFactName, false)) +
            "  " + text);
    }
    return lines;
}

std::vector<std::string> sweep_table(const Terminal& terminal, std::vector<SweepRow> rows) {
    // A loss that was low before it broke is no good one.
    const auto rank = [](const SweepRow& row) {
        return std::pair{!row.loss.nonfinite.empty(),
                         row.loss.lowest.value_or(std::numeric_limits<double>::infinity())};
    };
    sort_stably(rows, [&rank](const SweepRow& a, const SweepRow& b) { return rank(a) < rank(b); });
    std::vector<std::string> paths;
    std::vector<Json> jobs;
    for (const SweepRow& row : rows) {
        jobs.push_back(row.job);
        const Json& parameters = at(at(row.job, "sweep"), "parameters");
        if (paths.empty() && parameters.is_object()) {
            for (const auto& [path, value] : parameters.items()) {
                paths.push_back(path);
            }
        }
    }
    const std::size_t length = terminal.interactive ? short_id_length(jobs) : std::string::npos;
    std::vector<Table::Column> columns{{"ID"}};
    for (const std::string& path : paths) {
        columns.push_back({parameter_title(path, paths), true});
    }
    columns.insert(columns.end(),
                   {{"STATE"}, {"STEP", true}, {"LAST LOSS", true}, {"BEST LOSS", true}});
    Table table(std::move(columns));
    for (const SweepRow& row : rows) {
        std::vector<std::string> cells{short_id(text_at(row.job, "id"), length, terminal.unicode)};
        for (const std::string& path : paths) {
            cells.push_back(parameter_text(row.job, path));
        }
        const std::string state = text_at(row.job, "state");
        cells.push_back(paint(terminal, state_style(state), state));
        cells.push_back(integer_text(row.job, "step"));
        cells.push_back(row.loss.nonfinite.empty()
                            ? last_text(row.loss)
                            : paint(terminal, Style::red, last_text(row.loss)));
        cells.push_back(optional_loss(row.loss.lowest));
        table.row(std::move(cells));
    }
    return table.lines(terminal);
}

}  // namespace lockstep::cli
