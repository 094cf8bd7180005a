#include "scheduler-integration/slurm/slurm_info.hpp"

#include "job/base/clock.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <algorithm>

namespace lockstep {
namespace {

using Values = std::map<std::string, std::string>;

std::string_view value_of(const Values& values, const char* key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string_view{} : std::string_view{found->second};
}

// "300 sec" → 300. Anything else leaves the default.
void number_of(const Values& values, const char* key, std::int64_t& target) {
    const std::string_view text = value_of(values, key);
    if (const auto value = rows::number(text.substr(0, text.find(' ')))) {
        target = *value;
    }
}

// "a=1,b" → {a: 1, b: ""}.
Values parameters(std::string_view text) {
    Values out;
    for (const std::string& part : split(text, ',')) {
        const auto equal = part.find('=');
        const std::string key{trim(std::string_view{part}.substr(0, equal))};
        if (!key.empty()) {
            out.emplace(key, equal == std::string::npos ? "" : part.substr(equal + 1));
        }
    }
    return out;
}

std::optional<std::int64_t> optional_number(const Values& values, const char* key) {
    return rows::number(value_of(values, key));
}

void fill(SlurmConfig& config) {
    const Values& all = config.all;
    config.cluster = value_of(all, "ClusterName");
    if (auto version = parse_slurm_version(value_of(all, "SLURM_VERSION"))) {
        config.version = *version;
    }
    number_of(all, "MinJobAge", config.min_job_age);
    number_of(all, "MaxArraySize", config.max_array_size);
    number_of(all, "MaxJobCount", config.max_job_count);
    number_of(all, "MessageTimeout", config.message_timeout);
    number_of(all, "KillWait", config.kill_wait);
    config.auth_type = value_of(all, "AuthType");
    config.accounting_storage = value_of(all, "AccountingStorageType");
    config.select_type = value_of(all, "SelectType");
    config.preempt_mode = value_of(all, "PreemptMode");
    config.private_data =
        value_of(all, "PrivateData") == "none" ? "" : value_of(all, "PrivateData");
    config.job_requeue = value_of(all, "JobRequeue") != "0";
    const Values auth = parameters(value_of(all, "AuthInfo"));
    config.credential_ttl = optional_number(auth, "ttl");
    config.credential_expire = optional_number(auth, "cred_expire");
    config.scheduler_parameters = parameters(value_of(all, "SchedulerParameters"));
    number_of(config.scheduler_parameters, "max_script_size", config.max_script_bytes);
}

// "Key=value Key=value" of one line of scontrol -o.
Values pairs(std::string_view line) {
    Values out;
    for (const std::string& word : split(line, ' ')) {
        const auto equal = word.find('=');
        if (equal != std::string::npos && equal > 0) {
            out.emplace(word.substr(0, equal), word.substr(equal + 1));
        }
    }
    return out;
}

std::vector<std::string> words(const Values& values, const char* key) {
    const std::string_view text = value_of(values, key);
    if (text.empty() || text == "ALL" || text == "(null)" || text == "N/A") {
        return {};
    }
    return split(text, ',');
}

// UNLIMITED, NONE, INFINITE and what does not parse: absent.
std::optional<std::int64_t> duration(std::string_view text) {
    const auto seconds = parse_time_limit(text);
    return seconds ? std::optional{*seconds} : std::nullopt;
}

SlurmPartition partition_of(const Values& values) {
    SlurmPartition out;
    out.name = value_of(values, "PartitionName");
    out.state = value_of(values, "State");
    out.is_default = value_of(values, "Default") == "YES";
    out.hidden = value_of(values, "Hidden") == "YES";
    out.root_only = value_of(values, "RootOnly") == "YES";
    out.max_time = duration(value_of(values, "MaxTime"));
    out.default_time = duration(value_of(values, "DefaultTime"));
    out.max_nodes = optional_number(values, "MaxNodes");
    out.min_nodes = optional_number(values, "MinNodes").value_or(0);
    out.total_nodes = optional_number(values, "TotalNodes").value_or(0);
    out.total_cpus = optional_number(values, "TotalCPUs").value_or(0);
    out.max_memory_mb_per_node = optional_number(values, "MaxMemPerNode");
    const std::string_view nodes = value_of(values, "Nodes");
    out.nodes = rows::is_hostlist_text(nodes) ? nodes : "";  // not "(null)"
    out.allow_accounts = words(values, "AllowAccounts");
    out.deny_accounts = words(values, "DenyAccounts");
    out.allow_groups = words(values, "AllowGroups");
    out.allow_qos = words(values, "AllowQos");
    out.deny_qos = words(values, "DenyQos");
    const std::string_view qos = value_of(values, "QoS");
    out.qos = qos == "N/A" || qos == "(null)" ? "" : qos;
    out.preempt_mode = value_of(values, "PreemptMode");
    return out;
}

constexpr std::size_t kNodeFields = 8;
// Each field is followed by a separator, and the last one by a newline too: an administrator may
// write newlines into the reason.
constexpr std::string_view kRowEnd = "\x1f\n";
// Field names of sinfo -O with the room each gets: 800 bytes a row in all. What is longer is cut.
constexpr std::string_view kNodeColumns =
    "NodeHost:96 StateLong:32 CPUsState:32 Memory:16 Gres:192 GresUsed:192 PartitionName:64 "
    "Reason:160";

// "mixed-" → "mixed" and its mark. The suffixes: sinfo(1), NODE STATE CODES.
void set_state(SlurmNode& node, std::string_view text) {
    const auto end = text.find_first_of("*~#!%$@^-+");
    node.state = text.substr(0, end);
    node.flags = end == std::string_view::npos ? "" : text.substr(end);
}

std::optional<SlurmNode> node_row(std::string_view line) {
    const auto parts = rows::fields<kNodeFields>(line);
    if (!parts) {
        return std::nullopt;
    }
    std::array<std::string_view, kNodeFields> p;
    std::transform(parts->begin(), parts->end(), p.begin(), trim);
    const std::vector<std::string> cpus = split(p[2], '/');  // allocated/idle/other/total
    const auto memory = rows::number(p[3]);
    const bool name =
        !p[0].empty() && std::all_of(p[0].begin(), p[0].end(), rows::is_name_character);
    if (!name || p[1].empty() || cpus.size() != 4 || !memory || p[6].empty()) {
        return std::nullopt;
    }
    const auto used = rows::number(cpus[0]);
    const auto idle = rows::number(cpus[1]);
    const auto total = rows::number(cpus[3]);
    if (!used || !idle || !total) {
        return std::nullopt;
    }
    SlurmNode node;
    node.name = p[0];
    set_state(node, p[1]);
    node.reason = p[7] == "none" ? "" : printable(p[7]);
    node.cpus = *total;
    node.cpus_allocated = *used;
    node.cpus_idle = *idle;
    node.memory_mb = *memory;
    node.gres = p[4] == "(null)" ? "" : printable(p[4]);
    node.gres_used = p[5] == "(null)" ? "" : printable(p[5]);
    node.partitions.emplace_back(printable(p[6]));
    return node;
}

}  // namespace

bool SlurmConfig::has_accounting() const {
    return accounting_storage.find("slurmdbd") != std::string::npos;
}

bool SlurmConfig::hides_other_jobs() const {
    const auto words = split(private_data, ',');
    return std::find(words.begin(), words.end(), "jobs") != words.end();
}

std::int64_t SlurmConfig::credential_lifetime() const {
    if (credential_ttl) {
        return *credential_ttl;
    }
    return auth_type == "auth/slurm" ? 60 : auth_type == "auth/jwt" ? 1800 : 300;
}

Result<SlurmConfig> parse_show_config(const ProgramOutput& output) {
    if (!output.succeeded()) {
        return fail(slurm_failure("scontrol show config", output));
    }
    SlurmConfig config;
    std::map<std::int64_t, std::string> controllers;
    for (const std::string_view line : rows::lines(output.out)) {
        const auto equal = line.find('=');
        const std::string key{trim(line.substr(0, equal))};
        if (equal == std::string_view::npos || key.empty()) {
            continue;  // "Configuration data as of …", "Slurmctld(primary) at ctl is UP"
        }
        std::string_view value = trim(line.substr(equal + 1));
        value = value == "(null)" ? std::string_view{} : value;
        config.all.emplace(key, value);
        if (key.starts_with("SlurmctldHost[")) {
            const auto n = rows::number(std::string_view{key}.substr(14, key.size() - 15));
            controllers.emplace(n.value_or(0), std::string{value.substr(0, value.find('('))});
        }
    }
    if (!config.all.contains("ClusterName") || !config.all.contains("SLURM_VERSION")) {
        return fail(Errc::unavailable, "scontrol show config: an answer we do not understand");
    }
    for (auto& [n, host] : controllers) {
        config.controllers.push_back(std::move(host));
    }
    fill(config);
    return config;
}

Result<std::vector<SlurmPartition>> parse_show_partitions(const ProgramOutput& output) {
    if (!output.succeeded()) {
        return fail(slurm_failure("scontrol show partition", output));
    }
    std::vector<SlurmPartition> partitions;
    for (const std::string_view line : rows::lines(output.out)) {
        if (line.starts_with("PartitionName=")) {
            partitions.push_back(partition_of(pairs(line)));
        }
    }
    return partitions;
}

std::vector<std::string> sinfo_node_arguments() {
    std::string format;
    for (const std::string& column : split(kNodeColumns, ' ')) {
        format += format.empty() ? "" : ",";
        format.append(column).append(1, rows::kSeparator);
    }
    return {"-a", "-N", "-h", "-O", std::move(format)};
}

bool SlurmNode::usable() const {
    constexpr std::array<std::string_view, 5> kUsable{"idle", "mixed", "allocated", "completing",
                                                      "planned"};
    return std::find(kUsable.begin(), kUsable.end(), state) != kUsable.end() &&
           flags.find_first_of("*$^!%") == std::string::npos;
}

std::int64_t SlurmNode::gpus() const {
    return gpus_of(gres);
}

std::int64_t SlurmNode::gpus_used() const {
    return gpus_of(gres_used);
}

Result<NodeTable> parse_sinfo_nodes(const ProgramOutput& output) {
    if (!output.succeeded()) {
        return fail(slurm_failure("sinfo", output));
    }
    NodeTable table;
    std::map<std::string, std::size_t> known;
    for (std::string_view rest = output.out; !trim(rest).empty();) {
        const auto end = rest.find(kRowEnd);
        auto node = end == std::string_view::npos ? std::nullopt : node_row(rest.substr(0, end));
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + kRowEnd.size());
        if (!node) {
            ++table.malformed;
            continue;
        }
        const auto [at, fresh] = known.emplace(node->name, table.nodes.size());
        if (fresh) {
            table.nodes.push_back(std::move(*node));
        } else {
            table.nodes[at->second].partitions.push_back(std::move(node->partitions.front()));
        }
    }
    return table;
}

namespace {

// Calls `found` with the type ("" = none) and the count of each GPU item of a GRES text.
template <class Found>
void each_gpu_item(std::string_view gres, const Found& found) {
    while (!gres.empty()) {
        // A comma inside (S:0,2) or (IDX:0,2) separates nothing.
        std::size_t depth = 0;
        std::size_t end = 0;
        for (; end < gres.size() && (depth > 0 || gres[end] != ','); ++end) {
            depth += gres[end] == '(' ? 1 : gres[end] == ')' && depth > 0 ? std::size_t(-1) : 0;
        }
        std::string_view item = trim(gres.substr(0, end));
        gres.remove_prefix(std::min(gres.size(), end + 1));
        item = item.substr(0, item.find('('));
        if (item == "gpu") {
            found(std::string_view{}, std::int64_t{1});
        } else if (item.starts_with("gpu:")) {
            item.remove_prefix(4);
            const auto colon = item.rfind(':');
            const auto count =
                rows::number(item.substr(colon == std::string_view::npos ? 0 : colon + 1));
            // "gpu:a100" without a number is one. No node has more than a few hundred.
            const std::int64_t number = !count ? 1 : *count <= 65'536 ? *count : 0;
            const std::string_view type = colon != std::string_view::npos ? item.substr(0, colon)
                                          : count                         ? std::string_view{}
                                                                          : item;
            found(type, number);
        }
    }
}

}  // namespace

std::int64_t gpus_of(std::string_view gres) {
    std::int64_t sum = 0;
    each_gpu_item(gres, [&](std::string_view, std::int64_t count) { sum += count; });
    return sum;
}

std::map<std::string, std::int64_t> gpu_types_of(std::string_view gres) {
    std::map<std::string, std::int64_t> types;
    each_gpu_item(gres, [&](std::string_view type, std::int64_t count) {
        if (!type.empty() && type.size() <= 64 && rows::printable_bytes(type)) {
            types[std::string{type}] += count;
        }
    });
    return types;
}

}  // namespace lockstep
