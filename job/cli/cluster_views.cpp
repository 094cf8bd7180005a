#include "job/base/text.hpp"
#include "job/cli/fields.hpp"
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

std::string memory_text(const Json& node) {
    const auto mb = integer_at(node, "memory_mb");
    return mb ? std::to_string((*mb + 512) / 1024) + " GiB" : "-";
}

std::string idle_of(const Json& nodes) {
    const auto idle = integer_at(nodes, "idle");
    const std::string total = integer_text(nodes, "total");
    return idle ? std::to_string(*idle) + "/" + total : total;
}

}  // namespace

Lines nodes_table(const Terminal& terminal, const Json& nodes) {
    Table table({{"NODE", false, true},
                 {"STATE"},
                 {"CPU", true},
                 {"GPU", true},
                 {"MEMORY", true},
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
                   memory_text(node), joined(items_at(node, "partitions")),
                   bad && !reason.empty() ? reason : jobs});
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
        lines.emplace_back("its nodes are being asked for: once more in a moment");
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
