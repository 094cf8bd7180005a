#include "job/cli/views.hpp"

#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/job_names.hpp"
#include "job/cli/times.hpp"
#include "job/model/state.hpp"

#include <algorithm>

namespace lockstep::cli {
namespace {

// 2026-11-21T01:02:03.456Z → 2026-11-21 02:02:03 CET (12m ago)
std::string moment_text(const Json& object, std::string_view key, UnixMillis now) {
    const auto time = time_at(object, key);
    if (!time) {
        return "-";
    }
    return local_time(*time) + (*time > now ? " (in " + age_text(now, *time) + ")"
                                            : " (" + age_text(*time, now) + " ago)");
}

std::string seconds_between(const Json& object, std::string_view from, std::string_view to,
                            UnixMillis now) {
    const auto begin = time_at(object, from);
    if (!begin) {
        return "-";
    }
    const auto end = time_at(object, to).value_or(now);
    return format_clock(static_cast<double>(end - *begin) / 1000);
}

class Facts {
  public:
    explicit Facts(const Terminal& terminal, Lines& lines) : terminal_(terminal), lines_(lines) {}
    void add(std::string_view name, const std::string& value) {
        if (!value.empty() && value != "-") {
            lines_.push_back(paint(terminal_, Style::dim, fit(terminal_, name, kFactName, false)) +
                             "  " + value);
        }
    }

  private:
    const Terminal& terminal_;
    Lines& lines_;
};

std::string resources_text(const Json& job) {
    const Json& resources = at(job, "resources");
    const auto nodes = integer_at(resources, "nodes");
    const auto per_node = integer_at(resources, "ranks_per_node");
    if (!nodes || !per_node) {
        return "";
    }
    std::string out = std::to_string(*nodes) + " × " + std::to_string(*per_node) + " ranks";
    if (const auto least = integer_at(resources, "min_nodes")) {
        out += ", at least " + std::to_string(*least) + (*least == 1 ? " node" : " nodes");
    }
    if (const auto spares = integer_at(resources, "spares"); spares && *spares > 0) {
        out += ", " + std::to_string(*spares) + (*spares == 1 ? " spare node" : " spare nodes");
    }
    if (const auto gpus = integer_at(resources, "gpus_per_node"); gpus && *gpus > 0) {
        const std::string type = text_at(resources, "gpu_type");
        out += ", " + std::to_string(*gpus) + (type.empty() ? "" : " " + one_line(type)) +
               " GPUs a node";
    }
    return out;
}

}  // namespace

std::string smaller_text(const Json& job) {
    const Json& attempts = items_at(job, "attempts");
    const Json& generations =
        attempts.empty() ? attempts : items_at(attempts.back(), "generations");
    const auto wanted = integer_at(at(job, "resources"), "nodes");
    if (generations.empty() || !wanted || is_final_state(text_at(job, "state"))) {
        return "";
    }
    const auto nodes = integer_at(generations.back(), "nodes").value_or(*wanted);
    return nodes < *wanted ? std::to_string(nodes) + " of " + std::to_string(*wanted) + " nodes"
                           : "";
}

namespace {

std::string labels_text(const Json& job) {
    std::string out;
    const Json& labels = at(job, "labels");
    if (labels.is_object()) {
        for (const auto& [name, value] : labels.items()) {
            out += (out.empty() ? "" : " ") + one_line(name) + "=" +
                   (value.is_string() ? one_line(value.get_ref<const std::string&>()) : "?");
        }
    }
    return out;
}

std::string anomalies_text(const Json& job) {
    std::string out;
    const Json& anomalies = at(job, "anomalies");
    if (anomalies.is_object()) {
        for (const auto& [kind, count] : anomalies.items()) {
            out += (out.empty() ? "" : ", ") +
                   (count.is_number_integer() ? std::to_string(count.get<std::int64_t>()) : "?") +
                   " × " + one_line(kind);
        }
    }
    return out;
}

void attempts_view(const Terminal& terminal, const Json& job, UnixMillis now, Lines& lines) {
    for (const Json& attempt : items_at(job, "attempts")) {
        std::string line = "attempt " + integer_text(attempt, "number");
        line += text_at(attempt, "state").empty() ? "" : "  " + text_at(attempt, "state");
        const std::string number = text_at(attempt, "scheduler_id");
        const bool slurm = number.find_first_not_of("0123456789") == std::string::npos;
        line += number.empty() ? "" : (slurm ? "  Slurm job " : "  ") + number;
        lines.push_back(paint(terminal, Style::bold, line) + "  " +
                        seconds_between(attempt, "started_at", "finished_at", now));
        Facts facts(terminal, lines);
        for (const auto& [label, key] : {std::pair{"  nodes", "nodes"}, {"  lost", "lost_nodes"}}) {
            std::string nodes;
            for (const Json& node : items_at(attempt, key)) {
                nodes += (nodes.empty() ? "" : " ") +
                         (node.is_string() ? one_line(node.get_ref<const std::string&>())
                                           : text_at(node, "node"));
            }
            facts.add(label, nodes);
        }
        for (const Json& one : items_at(attempt, "preflight")) {
            facts.add("  " + text_at(one, "severity"), text_at(one, "node") + ": " +
                                                           text_at(one, "found") + "; expected " +
                                                           text_at(one, "expected"));
        }
        for (const Json& generation : items_at(attempt, "generations")) {
            std::string text = seconds_between(generation, "started_at", "finished_at", now);
            if (const auto step = integer_at(generation, "resumed_from_step"); step && *step >= 0) {
                text += "  resumed from step " + std::to_string(*step);
            }
            if (const std::string size = text_at(generation, "message"); !size.empty()) {
                text += "  " + size;
            }
            const std::string cause = cause_text(at(generation, "cause"));
            text.append(cause.empty() ? "" : "  ").append(cause);
            facts.add("  gen. " + integer_text(generation, "number"), text);
        }
        facts.add("  ended", cause_text(at(attempt, "cause")));
    }
}

}  // namespace

bool is_final_state(std::string_view state) {
    const auto parsed = parse_job_state(state);
    return parsed && is_final(*parsed);
}

std::optional<double> running_seconds(const Json& job, UnixMillis now) {
    const auto begin = time_at(job, "started_at");
    if (!begin) {
        return std::nullopt;
    }
    const double still = number_at(at(job, "spans"), "suspended_seconds").value_or(0);
    const auto end = time_at(job, "finished_at").value_or(now);
    return std::max(0.0, static_cast<double>(end - *begin) / 1000 - still);
}

bool lacks_loss(const Json& job, UnixMillis now) {
    const auto ran = running_seconds(job, now);
    const std::string state = text_at(job, "state");
    if (!ran || integer_at(job, "step") || (is_final_state(state) && state != "succeeded")) {
        return false;  // what failed has another cause
    }
    // `lockstep run -- hostname` was never to have a loss.
    const bool should_have = state == "succeeded" && text_at(job, "framework") != "command";
    return should_have || *ran >= limits::kLossSilenceSeconds;
}

Lines jobs_table(const Terminal& terminal, const std::vector<Json>& jobs, UnixMillis now,
                 bool numbered) {
    std::vector<Table::Column> columns;
    if (numbered) {
        columns.push_back({"@", true});
    }
    columns.insert(columns.end(), {{"ID"},
                                   {"NAME", false, true},
                                   {"STATE"},
                                   {"STEP", true},
                                   {"RAN", true},
                                   {"AGE", true},
                                   {"USER", false, true}});
    Table table(std::move(columns));
    const std::size_t length = terminal.interactive ? short_id_length(jobs) : std::string::npos;
    std::size_t number = 0;
    for (const Json& job : jobs) {
        std::vector<std::string> cells;
        if (numbered) {
            cells.push_back("@" + std::to_string(++number));
        }
        const std::string state = text_at(job, "state");
        const auto seconds = running_seconds(job, now);
        const auto submitted = time_at(job, "submitted_at");
        cells.insert(cells.end(),
                     {short_id(text_at(job, "id"), length, terminal.unicode), text_at(job, "name"),
                      paint(terminal, state_style(state), state), integer_text(job, "step"),
                      seconds ? format_clock(*seconds) : "-",
                      submitted ? age_text(*submitted, now) : "-", text_at(job, "user")});
        table.row(std::move(cells));
    }
    return table.lines(terminal);
}

namespace {

// "2 of 6 (train.learning_rate 0.1, train.seed 3), all: --sweep ls-…"
std::string sweep_text(const Json& job) {
    const Json& sweep = at(job, "sweep");
    if (!sweep.is_object()) {
        return "";
    }
    std::string values;
    for (const auto& [name, value] : at(sweep, "parameters").items()) {
        values += (values.empty() ? "" : ", ") + one_line(name) + " " + one_line(dump_json(value));
    }
    return std::to_string(integer_at(sweep, "index").value_or(0) + 1) + " of " +
           integer_text(sweep, "size") + " (" + values + "), of " + text_at(sweep, "id");
}

std::string after_text(const Json& job) {
    std::string out;
    for (const Json& id : items_at(job, "after")) {
        out += id.is_string()
                   ? (out.empty() ? "" : ", ") + one_line(id.get_ref<const std::string&>())
                   : "";
    }
    return out;
}

// A lost step counts as done again once it has been.
std::string lost_text(const Json& job) {
    std::vector<const Json*> all;
    for (const Json& attempt : items_at(job, "attempts")) {
        for (const Json& generation : items_at(attempt, "generations")) {
            all.push_back(&generation);
        }
    }
    const std::int64_t lost = integer_at(job, "lost_steps").value_or(0);
    double ahead = 0;     // that have still to be done again
    double reached = -1;  // by a later one
    for (auto one = all.rbegin(); one != all.rend(); ++one) {
        const double step = static_cast<double>(integer_at(**one, "step").value_or(-1));
        const double own = static_cast<double>(integer_at(**one, "lost_steps").value_or(0));
        ahead += std::max(std::min(step - reached, own), 0.0);
        reached = std::max(reached, step);
    }
    if (lost <= 0) {
        return "";
    }
    return std::to_string(lost) +
           (ahead <= 0 ? ", done again after a restart"
            : ahead < static_cast<double>(lost)
                ? ", " + std::to_string(lost - static_cast<std::int64_t>(ahead)) +
                      " of them done again so far"
                : "");
}

}  // namespace

Lines job_view(const Terminal& terminal, const Json& job, UnixMillis now) {
    Lines lines;
    const std::string state = text_at(job, "state");
    lines.push_back(paint(terminal, Style::bold, text_at(job, "name")) + "  " +
                    paint(terminal, state_style(state), state));
    Facts facts(terminal, lines);
    facts.add("id", text_at(job, "id"));
    facts.add("pending", text_at(job, "pending_reason"));
    facts.add("may start", moment_text(job, "expected_start", now));
    facts.add("framework", text_at(job, "framework"));
    facts.add("resources", resources_text(job));
    facts.add("runs on", smaller_text(job));
    facts.add("user", text_at(job, "user"));
    facts.add("labels", labels_text(job));
    facts.add("sweep", sweep_text(job));
    facts.add("after", after_text(job));
    facts.add("submitted", moment_text(job, "submitted_at", now));
    facts.add("started", moment_text(job, "started_at", now));
    facts.add("finished", moment_text(job, "finished_at", now));
    if (const auto seconds = running_seconds(job, now)) {
        facts.add("ran", format_clock(*seconds));
    }
    if (const auto still = number_at(at(job, "spans"), "suspended_seconds"); still && *still > 0) {
        facts.add("suspended", format_clock(*still) + " by the scheduler, not in what it ran");
    }
    facts.add("step", integer_text(job, "step"));
    if (const auto ettr = number_at(job, "ettr")) {
        facts.add("productive",
                  format_value(100 * *ettr) + " % of the time since the start (ETTR)");
    }
    facts.add("lost steps", lost_text(job));
    if (const Json& hang = at(job, "hang"); hang.is_object()) {
        facts.add("HANGS",
                  "since " + moment_text(hang, "since", now) + ": " + text_at(hang, "message"));
    }
    if (const Json& desync = at(job, "desync"); desync.is_object()) {
        facts.add("WAITED FOR",
                  "since " + moment_text(desync, "since", now) + ": " + text_at(desync, "message"));
    }
    facts.add("anomalies", anomalies_text(job));
    if (const auto saved = integer_at(job, "checkpoint_step")) {
        facts.add("checkpoint",
                  text_at(job, "checkpoint_path") + " (step " + std::to_string(*saved) + ")");
    }
    if (const Json& attempts = items_at(job, "attempts"); !attempts.empty()) {
        facts.add("logs", text_at(attempts.back(), "directory"));
    }
    for (const Json& warning : items_at(job, "warnings")) {
        facts.add("warning",
                  warning.is_string() ? one_line(warning.get_ref<const std::string&>()) : "");
    }
    attempts_view(terminal, job, now, lines);
    for (std::string& line : cause_view(terminal, at(job, "cause"))) {
        lines.push_back(std::move(line));
    }
    return lines;
}

std::string event_line(const Terminal& terminal, const Json& event) {
    std::string time = text_at(event, "time");  // a pipe gets it whole, in UTC
    if (const auto moment = time_at(event, "time"); terminal.interactive && moment) {
        time = local_clock(*moment);
    }
    std::string line =
        paint(terminal, Style::dim, time) + "  " + fit(terminal, text_at(event, "kind"), 18, false);
    for (const char* key : {"attempt", "generation", "rank"}) {
        if (const auto value = integer_at(event, key)) {
            line += std::string("  ") + key + " " + std::to_string(*value);
        }
    }
    const Json& data = at(event, "data");
    const std::string node = text_at(event, "node");
    line += node.empty() ? "" : "  on " + node;
    for (const char* key : {"state", "message", "path", "by", "scheduler_id"}) {
        const std::string text = text_at(data, key);
        line += text.empty() ? "" : "  " + text;
    }
    for (const char* key : {"step", "exit_code", "signal", "gpu", "xid"}) {
        const auto value = integer_at(data, key);
        if (value && *value >= (std::string_view(key) == "signal" ? 1 : 0)) {
            line += std::string("  ") + key + " " + std::to_string(*value);
        }
    }
    if (const auto warm = integer_at(data, "warm"); warm && *warm > 0) {
        line += "  " + std::to_string(*warm) +
                (*warm == 1 ? " was a warm standby" : " were warm standbys");
    }
    const std::string cause = cause_text(at(data, "cause"));
    return cause.empty() ? line : line + "  " + cause;
}

}  // namespace lockstep::cli
