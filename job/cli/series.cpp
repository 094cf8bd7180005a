// lockstep series: what the ranks reported of one metric, as a plot or as rows.
#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/plot.hpp"
#include "job/cli/times.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

namespace lockstep::cli {
namespace {

// --from and --to: a step, or a time.
struct Bound {
    double value = 0;
    bool is_time = false;   // seconds since the Unix epoch
    bool is_plain = false;  // a number: a step, or with --x time seconds since the epoch
};

Result<Bound> parse_bound(const std::string& text, UnixMillis now) {
    if (const auto number = to_double(text); number && std::isfinite(*number)) {
        return Bound{*number, false, true};
    }
    if (const auto moment = parse_moment(text, now)) {
        return Bound{static_cast<double>(*moment) / 1000, true, false};
    }
    return fail(Errc::invalid,
                "give a step, a time in UTC as in 2026-11-22T08:30:00Z, or how long "
                "ago as in 90s, 30m, 2h, 1d; not " +
                    one_line(text));
}

struct Asked {
    std::string target;
    bool by_time = false;
};

Result<Asked> asked_for(const Context& context, const std::string& id) {
    const Options& options = context.options;
    Asked out;
    out.by_time = options.x == "time";
    std::string range;
    bool any_plain = false;
    for (const auto& [name, text] :
         {std::pair<const char*, const std::string&>{"from", options.from}, {"to", options.to}}) {
        if (text.empty()) {
            continue;
        }
        const auto bound = parse_bound(text, context.clock.wall());
        if (!bound) {
            return fail(bound.error().in(std::string("--") + name));
        }
        if (bound->is_time && options.x == "step") {
            return fail(Errc::invalid,
                        std::string("--") + name + ": is a time, and --x step wants a step");
        }
        out.by_time = out.by_time || bound->is_time;
        std::array<char, 32> digits{};
        const auto end = std::to_chars(digits.begin(), digits.end(), bound->value).ptr;
        range += std::string("&") + name + "=" + query_encode({digits.data(), end});
        any_plain = any_plain || bound->is_plain;
    }
    if (any_plain && out.by_time && options.x.empty()) {
        return fail(Errc::invalid, "--from, --to: one is a time, the other a step");
    }
    // Two columns of dots a character; a program can take what there is.
    const std::int64_t fitting =
        context.terminal.interactive ? static_cast<std::int64_t>(context.terminal.width) * 2 : 800;
    out.target = "/v1/jobs/" + id + "/series?metric=" + query_encode(options.metric) +
                 "&x=" + (out.by_time ? "time" : "step") + "&points=" +
                 std::to_string(options.points > 0 ? options.points
                                                   : std::clamp<std::int64_t>(fitting, 10, 800)) +
                 (options.ranks.empty() ? "" : "&ranks=" + query_encode(options.ranks)) + range;
    return out;
}

// Where on the axis the ranks were started anew.
std::vector<double> restarts_of(const Json& job, bool by_time) {
    std::vector<double> out;
    bool first = true;
    for (const Json& attempt : items_at(job, "attempts")) {
        for (const Json& generation : items_at(attempt, "generations")) {
            if (std::exchange(first, false)) {
                continue;
            }
            if (const auto started = time_at(generation, "started_at"); by_time && started) {
                out.push_back(static_cast<double>(*started) / 1000);
            } else if (!by_time) {
                out.push_back(static_cast<double>(std::max<std::int64_t>(
                    integer_at(generation, "resumed_from_step").value_or(0), 0)));
            }
        }
    }
    return out;
}

// The shortest digits that are this number.
std::string digits_of(double value) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
    return {text.data(), end};
}

// One row a point, for programs: tabs between, all digits.
void print_rows(Context& context, const Json& series) {
    context.out << (text_at(series, "x") == "time" ? "time" : "step") << "\trank\tmin\tmax\tlast\n";
    for (const Json& one : items_at(series, "series")) {
        std::map<double, std::string> words;  // JSON has no NaN: what a null stood for
        for (const Json& value : items_at(one, "nonfinite")) {
            if (value.is_array() && value.size() == 2 && value[0].is_number() &&
                value[1].is_string()) {
                words[value[0].get<double>()] = one_line(value[1].get<std::string>());
            }
        }
        const std::string rank = integer_text(one, "rank");
        for (const Json& point : items_at(one, "points")) {
            if (!point.is_array() || point.size() < 4 || !point[0].is_number()) {
                continue;
            }
            const double x = point[0].get<double>();
            const auto word = words.find(x);
            const std::string none = word == words.end() ? "nan" : word->second;
            context.out << (point[0].is_number_integer() ? dump_json(point[0]) : digits_of(x))
                        << "\t" << rank;
            for (std::size_t i = 1; i < 4; ++i) {
                context.out << "\t"
                            << (point[i].is_number() ? digits_of(point[i].get<double>()) : none);
            }
            context.out << "\n";
        }
    }
    context.out << std::flush;
}

// Why there is nothing to show, and what there is.
Exit nothing_found(Context& context, const std::string& id, const Json& answer) {
    const std::string metric = one_line(context.options.metric);
    std::string names;
    bool known = false;
    for (const Json& name : items_at(answer, "metrics")) {
        const std::string text = name.is_string() ? one_line(name.get<std::string>()) : "";
        known = known || text == metric;
        names += (names.empty() ? "" : ", ") + text;
    }
    if (known) {
        context.err << "error: these ranks reported nothing as " << metric << " in this range\n";
    } else if (!names.empty()) {
        context.err << "error: nothing was reported as " << metric << "; there are: " << names
                    << "\n";
    } else {
        const auto job = context.client.get_json("/v1/jobs/" + id);
        const std::string state = job ? text_at(*job, "state") : "";
        const std::string reason = job ? text_at(*job, "pending_reason") : "";
        context.err << "error: nothing was reported" << (is_final_state(state) ? "" : " yet")
                    << (state.empty() ? "" : "; the job is " + state)
                    << (reason.empty() ? "" : ", pending: " + reason) << "\n";
        if (job && lacks_loss(*job, context.clock.wall())) {
            context.err << kLossHint << "\n";
        }
    }
    return Exit::not_found;
}

}  // namespace

Exit series(Context& context, const std::string& id) {
    const Options& options = context.options;
    const auto asked = asked_for(context, id);
    if (!asked) {
        return report(context, asked.error());
    }
    const auto answer = context.client.get_json(asked->target);
    if (!answer) {
        return report(context, answer.error());
    }
    if (options.json) {
        print_json(context, *answer);
        return Exit::ok;
    }
    const std::vector<PlotLine> lines = plot_lines(*answer);
    const bool any = std::any_of(lines.begin(), lines.end(),
                                 [](const PlotLine& line) { return !line.points.empty(); });
    if (!any) {
        return nothing_found(context, id, *answer);
    }
    if (!context.terminal.interactive) {
        print_rows(context, *answer);
        return Exit::ok;
    }
    PlotLabels labels;
    const std::string unit = unit_of(options.metric);
    labels.title = one_line(options.metric) + (unit.empty() ? "" : " [" + unit + "]");
    labels.x_title = asked->by_time ? "time (UTC)" : "step";
    labels.x_is_time = asked->by_time;
    labels.y_is_time = unit == "s";
    if (const auto job = context.client.get_json("/v1/jobs/" + id)) {
        labels.restarts = restarts_of(*job, asked->by_time);
        labels.title += "  " + text_at(*job, "name");
    }
    const std::size_t rows = context.terminal.height > 10 ? context.terminal.height - 10 : 0;
    const auto drawing =
        plot(context.terminal, labels, lines, std::clamp<std::size_t>(rows, 6, 24));
    if (drawing.empty()) {
        context.err << "every value of " << one_line(options.metric) << " is nan or infinite\n";
    }
    print(context, drawing);
    return Exit::ok;
}

}  // namespace lockstep::cli
