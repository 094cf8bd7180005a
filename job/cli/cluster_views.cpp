#include "job/base/text.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/times.hpp"
#include "job/cli/views.hpp"

#include <cmath>

namespace lockstep::cli {
namespace {

std::string used_of(const Json& object, const char* used, const char* all) {
    const auto total = integer_at(object, all).value_or(0);
    return total == 0
               ? "-"
               : std::to_string(integer_at(object, used).value_or(0)) + "/" + std::to_string(total);
}

std::string joined(const Json& list) {
    std::string out;
    for (const Json& item : list) {
        if (item.is_string()) {
            out += (out.empty() ? "" : ",") + one_line(item.get_ref<const std::string&>());
        }
    }
    return out.empty() ? "-" : out;
}

std::string memory_of_node(const Json& node) {
    const auto mb = integer_at(node, "memory_mb");
    return mb ? std::to_string((*mb + 512) / 1024) + " GiB" : "-";
}

std::string idle_of(const Json& nodes) {
    const auto idle = integer_at(nodes, "idle");
    const std::string total = integer_text(nodes, "total");
    return idle ? std::to_string(*idle) + "/" + total : total;
}

std::string lately_text(const Terminal& terminal, const Json& node) {
    const auto faults = integer_at(at(node, "history"), "faults_7d");
    return !faults       ? "-"
           : *faults > 0 ? paint(terminal, Style::yellow, std::to_string(*faults))
                         : "0";
}

std::string faults_text(const Json& history) {
    std::string out = integer_text(history, "faults") + " in 90 days, " +
                      integer_text(history, "faults_7d") + " in 7";
    const Json& kinds = at(history, "by_kind");
    std::string words;
    for (auto kind = kinds.begin(); kinds.is_object() && kind != kinds.end(); ++kind) {
        words += (words.empty() ? "" : ", ") + one_line(kind.key()) + " " +
                 integer_text(kinds, kind.key());
    }
    return out + (words.empty() ? "" : ": " + words);
}

}  // namespace

Lines node_view(const Terminal& terminal, const Json& node) {
    Lines lines;
    const auto add = [&](std::string_view name, const std::string& value) {
        if (!value.empty() && value != "-") {
            lines.push_back(paint(terminal, Style::dim, fit(terminal, name, 12, false)) + "  " +
                            value);
        }
    };
    lines.push_back(paint(terminal, Style::bold, text_at(node, "name")) + "  " +
                    text_at(node, "state"));
    add("reason", text_at(node, "reason"));
    add("partitions", joined(items_at(node, "partitions")));
    add("CPUs used", used_of(node, "cpus_used", "cpus"));
    add("GPUs used", used_of(node, "gpus_used", "gpus"));
    add("memory", memory_of_node(node));
    add("jobs", joined(items_at(node, "jobs")));
    const Json& history = at(node, "history");
    if (!history.is_object()) {
        lines.emplace_back("no job's attempt on it is known");
        return lines;
    }
    add("attempts",
        integer_text(history, "attempts") + " since " + shown_time(terminal, history, "since"));
    add("faults", faults_text(history));
    if (integer_at(history, "slow").value_or(0) > 0) {
        add("slow", integer_text(history, "slow") + " times, for some of its ranks");
    }
    if (integer_at(history, "excluded").value_or(0) > 0) {
        add("left out", integer_text(history, "excluded") + " times by a job that it had failed");
    }
    const std::string well = shown_time(terminal, history, "healthy_at");
    add("last well", well.empty() ? "never" : well);
    Table table({{"TIME"}, {"FAULT"}, {"JOB"}, {"WHAT", false, true}});
    for (const Json& fault : items_at(node, "faults")) {
        const std::string job = text_at(fault, "job");
        table.row({shown_time(terminal, fault, "time"), text_at(fault, "kind"),
                   job.empty() ? "another's" : job, text_at(fault, "message")});
    }
    if (!table.empty()) {
        for (std::string& line : table.lines(terminal)) {
            lines.push_back(std::move(line));
        }
    }
    return lines;
}

Lines nodes_table(const Terminal& terminal, const Json& nodes) {
    Table table({{"NODE", false, true},
                 {"STATE"},
                 {"CPU", true},
                 {"GPU", true},
                 {"MEMORY", true},
                 {"FAULTS 7D", true},
                 {"PARTITIONS", false, true},
                 {"JOBS OR REASON", false, true}});
    for (const Json& node : items_at(nodes, "items")) {
        const Json& usable = at(node, "usable");
        const bool bad = usable.is_boolean() && !usable.get<bool>();
        const std::string reason = text_at(node, "reason");
        const std::string jobs = joined(items_at(node, "jobs"));
        table.row({text_at(node, "name"),
                   paint(terminal, bad ? Style::red : Style::green, text_at(node, "state")),
                   used_of(node, "cpus_used", "cpus"), used_of(node, "gpus_used", "gpus"),
                   memory_of_node(node), lately_text(terminal, node),
                   joined(items_at(node, "partitions")), bad && !reason.empty() ? reason : jobs});
    }
    return table.lines(terminal);
}

Lines preflight_table(const Terminal& terminal, const Json& findings) {
    Table table({{"NODE", false, true},
                 {"CHECK"},
                 {"SEVERITY"},
                 {"FOUND", false, true},
                 {"EXPECTED", false, true}});
    for (const Json& one : findings) {
        const std::string severity = text_at(one, "severity");
        table.row({text_at(one, "node"), text_at(one, "check"),
                   paint(terminal, severity == "fail" ? Style::red : Style::yellow, severity),
                   text_at(one, "found"), text_at(one, "expected")});
    }
    return table.empty() ? Lines{} : table.lines(terminal);
}

Lines cluster_view(const Terminal& terminal, const Json& cluster) {
    Lines lines;
    std::string head = text_at(cluster, "scheduler");
    for (const char* key : {"version", "name"}) {
        const std::string text = text_at(cluster, key);
        head += text.empty() ? "" : " " + text;
    }
    const Json& reachable = at(cluster, "reachable");
    if (reachable.is_boolean() && !reachable.get<bool>()) {
        head += "  " + paint(terminal, Style::red, text_at(cluster, "problem"));
    }
    lines.push_back(std::move(head));
    if (at(cluster, "nodes").is_object()) {
        const Json& nodes = at(cluster, "nodes");
        lines.push_back("nodes " + integer_text(nodes, "total") + ", usable " +
                        integer_text(nodes, "usable") + ", idle " + integer_text(nodes, "idle") +
                        "; CPUs used " + used_of(at(cluster, "cpus"), "used", "usable") +
                        "; GPUs used " + used_of(at(cluster, "gpus"), "used", "usable"));
    } else {
        lines.emplace_back("its nodes are being queried: try again in a moment");
    }
    if (items_at(cluster, "partitions").empty()) {
        return lines;
    }
    Table table({{"PARTITION", false, true},
                 {"STATE"},
                 {"NODES IDLE", true},
                 {"CPU", true},
                 {"GPU", true},
                 {"LONGEST", true},
                 {"DEFAULT TIME", true}});
    for (const Json& one : items_at(cluster, "partitions")) {
        const Json& main = at(one, "default");
        const bool is_default = main.is_boolean() && main.get<bool>();
        const std::string longest = text_at(one, "max_time");
        const std::string usual = text_at(one, "default_time");
        table.row({text_at(one, "name") + (is_default ? " (default)" : ""), text_at(one, "state"),
                   idle_of(at(one, "nodes")), used_of(at(one, "cpus"), "used", "usable"),
                   used_of(at(one, "gpus"), "used", "usable"),
                   longest.empty() ? "unlimited" : longest, usual.empty() ? "-" : usual});
    }
    for (std::string& line : table.lines(terminal)) {
        lines.push_back(std::move(line));
    }
    return lines;
}

}  // namespace lockstep::cli
