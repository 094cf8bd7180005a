// The part of rest_text.hpp that is about the cluster: partitions and nodes.
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/rest_text.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <algorithm>
#include <array>

namespace lockstep::rest {
namespace {

using json_fields::at;
using json_fields::member;
using json_fields::number_of;
using json_fields::text_of;
using json_fields::words_of;

std::string lower(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    return out;
}

// v0.0.38 has one flat object, the later ones nest it: the first of the two that is there.
const Json* either(const Json& record, const char* flat, std::initializer_list<const char*> path) {
    const Json* value = member(record, flat);
    return value != nullptr && !value->is_object() ? value : at(record, path);
}

// -1 (v0.0.38), NO_VAL and INFINITE of 32 bits mean none.
std::optional<std::int64_t> limit_of(const Json* value) {
    const auto number = number_of(value);
    return number && *number >= 0 && *number < 0xffff'fffd ? number : std::nullopt;
}

std::optional<std::int64_t> minutes_of(const Json* value) {
    const auto minutes = limit_of(value);
    return minutes ? std::optional{*minutes * 60} : std::nullopt;
}

std::vector<std::string> names_of(const Json* value) {
    auto names = words_of(value);
    std::erase(names, "ALL");
    return names;
}

SlurmPartition partition_of(const Json& record) {
    SlurmPartition out;
    out.name = printable(text_of(member(record, "name")));
    const auto states = words_of(either(record, "state", {"partition", "state"}));
    out.state = states.empty() ? "" : states.front();
    for (const std::string& word : words_of(member(record, "flags"))) {
        const std::string flag = lower(word);
        out.is_default = out.is_default || flag == "default";
        out.hidden = out.hidden || flag == "hidden";
        out.root_only = out.root_only || flag == "root_only";
    }
    out.max_time = minutes_of(either(record, "max_time_limit", {"maximums", "time"}));
    out.default_time = minutes_of(either(record, "default_time_limit", {"defaults", "time"}));
    out.max_nodes = limit_of(either(record, "maximum_nodes_per_job", {"maximums", "nodes"}));
    out.min_nodes =
        limit_of(either(record, "min nodes per job", {"minimums", "nodes"})).value_or(0);
    out.total_nodes = limit_of(either(record, "total_nodes", {"nodes", "total"})).value_or(0);
    out.total_cpus = limit_of(either(record, "total_cpus", {"cpus", "total"})).value_or(0);
    out.max_memory_mb_per_node = limit_of(
        either(record, "maximum_memory_per_node", {"maximums", "partition_memory_per_node"}));
    const std::string_view nodes = text_of(either(record, "nodes", {"nodes", "configured"}));
    out.nodes = rows::is_hostlist_text(nodes) ? nodes : "";
    out.allow_accounts = names_of(either(record, "allowed_accounts", {"accounts", "allowed"}));
    out.deny_accounts = names_of(either(record, "denied_accounts", {"accounts", "deny"}));
    out.allow_groups = names_of(either(record, "allowed_groups", {"groups", "allowed"}));
    out.allow_qos = names_of(either(record, "allowed_qos", {"qos", "allowed"}));
    out.deny_qos = names_of(either(record, "denied_qos", {"qos", "deny"}));
    out.qos = printable(text_of(either(record, "qos", {"qos", "assigned"})));
    return out;
}

// Slurm's base state and flags as sinfo prints them: a word and suffixes (sinfo(1), NODE STATE
// CODES; node_state_string() of slurm_protocol_defs.c).
void set_state(SlurmNode& node, const std::vector<std::string>& words) {
    const auto has = [&](std::string_view word) {
        return std::find(words.begin(), words.end(), word) != words.end();
    };
    constexpr std::array<std::string_view, 8> kBases{"idle",  "mixed",  "allocated", "down",
                                                     "error", "future", "unknown",   "allocated+"};
    std::string base = "unknown";
    for (const std::string& word : words) {
        if (std::find(kBases.begin(), kBases.end(), word) != kBases.end()) {
            base = word;
            break;
        }
    }
    const bool busy = base == "allocated" || base == "mixed";
    node.state = base;
    if (has("invalid_reg")) {
        node.state = "inval";
    } else if (has("drain")) {
        node.state = busy || has("completing") ? "draining" : "drained";
    } else if (has("fail")) {
        node.state = busy || has("completing") ? "failing" : "fail";
    } else if (has("maintenance") || has("maint")) {
        node.state = "maint";
    } else if (has("reserved") && base == "idle") {
        node.state = "reserved";
    } else if (has("completing")) {
        node.state = busy ? base : "completing";
        node.flags += busy ? "+" : "";
    } else if (has("planned") && base == "idle") {
        node.state = "planned";
    }
    constexpr std::array<std::pair<std::string_view, char>, 9> kSuffixes{{
        {"not_responding", '*'},
        {"no_respond", '*'},
        {"powered_down", '~'},
        {"powering_up", '#'},
        {"power_up", '#'},
        {"powering_down", '%'},
        {"power_down", '!'},
        {"reboot_issued", '^'},
        {"reboot_requested", '@'},
    }};
    for (const auto& [word, suffix] : kSuffixes) {
        if (has(word) && node.flags.find(suffix) == std::string::npos) {
            node.flags += suffix;
        }
    }
}

std::optional<SlurmNode> node_of(const Json& record) {
    SlurmNode node;
    node.name = text_of(member(record, "name"));
    const auto cpus = limit_of(member(record, "cpus"));
    std::vector<std::string> words;
    for (const char* key : {"state", "state_flags"}) {
        for (const std::string& word : words_of(member(record, key), 64)) {
            words.push_back(lower(word));
        }
    }
    const bool name = !node.name.empty() && node.name.size() <= 256 &&
                      std::all_of(node.name.begin(), node.name.end(), rows::is_name_character);
    if (!name || !cpus || words.empty()) {
        return std::nullopt;
    }
    set_state(node, words);
    node.cpus = *cpus;
    node.cpus_allocated = limit_of(member(record, "alloc_cpus")).value_or(0);
    const Json* idle = member(record, "idle_cpus");  // to v0.0.38
    idle = idle != nullptr ? idle : member(record, "alloc_idle_cpus");
    node.cpus_idle = node.usable() ? limit_of(idle).value_or(0) : 0;  // as sinfo counts
    node.memory_mb = number_of(member(record, "real_memory")).value_or(0);
    node.gres = printable(text_of(member(record, "gres")));
    node.gres_used = printable(text_of(member(record, "gres_used")));
    node.reason = printable(text_of(member(record, "reason")).substr(0, 1024));
    node.partitions = words_of(member(record, "partitions"));
    return node;
}

}  // namespace

Result<std::vector<SlurmPartition>> parse_partitions(const ClientResponse& response,
                                                     std::string_view user) {
    const auto records = elements_of("partitions", response, user);
    LOCKSTEP_TRY(records);
    std::vector<SlurmPartition> out;
    for (const Json& record : *records) {
        SlurmPartition partition = partition_of(record);
        if (!partition.name.empty()) {
            out.push_back(std::move(partition));
        }
    }
    return out;
}

Result<NodeTable> parse_nodes(const ClientResponse& response, std::string_view user) {
    const auto records = elements_of("nodes", response, user);
    LOCKSTEP_TRY(records);
    NodeTable table;
    for (const Json& record : *records) {
        if (auto node = node_of(record)) {
            table.nodes.push_back(std::move(*node));
        } else {
            ++table.malformed;
        }
    }
    return table;
}

}  // namespace lockstep::rest
