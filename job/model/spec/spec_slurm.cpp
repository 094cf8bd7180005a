// size: the table of sbatch's options, each with its grammar or the reason why it is refused
#include "job/model/spec/spec_slurm.hpp"

#include "job/base/check.hpp"
#include "job/base/limits.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>

namespace lockstep {
namespace {

// A value becomes part of an #SBATCH line, which ends at a blank and knows quotes, backslashes and
// # (sbatch(1)): none of these, no control character and no slash (a node list with one names a
// file) is in any pattern here. Names begin with a letter, a digit or _, so no program that gets
// one as an argument takes it for an option.
struct Pattern {
    const char* expression;
    const char* rule;  // for people
};

#define LOCKSTEP_NAME "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
constexpr Pattern kName{LOCKSTEP_NAME, "must be a name of letters, digits, _ . and -"};
constexpr Pattern kSeveralNames{
    LOCKSTEP_NAME "(," LOCKSTEP_NAME "){0,15}",
    "must be a name of letters, digits, _ . and -, or several with commas"};
constexpr Pattern kConstraint{"[A-Za-z0-9_.&|*()\\[\\],!:=-]{1,256}",
                              "may hold letters, digits and _ . - & | * ( ) [ ] , ! : ="};
constexpr Pattern kHosts{"[A-Za-z0-9_][A-Za-z0-9_.,\\[\\]-]*",
                         "must be a host list such as n[1-3],m7"};
constexpr Pattern kCount{"[0-9]{1,10}", "must be a whole number"};
constexpr Pattern kSize{"[0-9]{1,10}[KMGT]?", "must be a size such as 500M or 10G"};
constexpr Pattern kTime{"[A-Za-z0-9:+-]{1,64}",
                        "must be a time such as now+1hour or 2026-11-21T04:00:00"};
constexpr Pattern kSwitch{"", "takes no value: use \"\""};
constexpr Pattern kWords{"[A-Za-z0-9_]{1,32}(,[A-Za-z0-9_]{1,32}){0,15}",
                         "must be a name, or several separated by commas"};

struct Directive {
    const char* option;
    Pattern pattern;
};

// Options that change neither what Lockstep starts nor where its files are.
constexpr std::array kDirectives{
    Directive{"acctg-freq",
              {"[0-9]{1,6}|[a-z]{1,16}=[0-9]{1,6}(,[a-z]{1,16}=[0-9]{1,6}){0,7}",
               "must be seconds, or such as task=30,energy=60"}},
    Directive{"batch", kConstraint},
    Directive{"bb",
              {"[A-Za-z0-9_.:,=@-]{1,256}",
               "must be such as capacity=100GB,access=striped (without #DW lines)"}},
    Directive{"begin", kTime},
    Directive{"cluster-constraint", {"!?[A-Za-z0-9_,-]{1,128}", "must be a list of features"}},
    Directive{"comment",
              {"[A-Za-z0-9_.:,=+@/-]([A-Za-z0-9_.:,=+@/ -]{0,254}[A-Za-z0-9_.:,=+@/-])?",
               "may hold letters, digits, spaces between them and _ . : , = + @ / -"}},
    Directive{"consolidate-segments", kSwitch},
    Directive{"contiguous", kSwitch},
    Directive{"core-spec", kCount},
    Directive{"cores-per-socket", kCount},
    Directive{"cpu-freq",
              {"[A-Za-z0-9:-]{1,64}", "must be such as high or 1000000-2000000:OnDemand"}},
    Directive{"deadline", kTime},
    Directive{"delay-boot", kCount},
    Directive{"distribution",
              {"(block|cyclic)(:(block|cyclic|fcyclic)){0,2}(,(Pack|NoPack))?",
               "must be block or cyclic, for nodes, sockets and cores: block:cyclic"}},
    Directive{"extra",
              {"[A-Za-z0-9_.:,=<>&|!()@/-]{1,256}",
               "may hold letters, digits and _ . : , = < > & | ! ( ) @ / -"}},
    Directive{"extra-node-info",
              {"([0-9]{1,5}|\\*)(:([0-9]{1,5}|\\*)){0,2}",
               "must be sockets, or sockets:cores:threads, each a number or *"}},
    Directive{"gpu-freq",
              {"[A-Za-z0-9=]{1,32}(,[A-Za-z0-9=]{1,32}){0,3}",
               "must be such as high or medium,memory=low"}},
    Directive{"gres",
              {"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?:[0-9]{1,10}[KMGT]?"
               "(,[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?:[0-9]{1,10}[KMGT]?)*",
               "must be such as lustre:1 or craynetwork:hsn:2"}},
    Directive{"gres-flags",
              {"(disable|enforce)-binding|allow-task-sharing|one-task-per-sharing",
               "must be disable-binding, enforce-binding or allow-task-sharing"}},
    Directive{"hint",
              {"compute_bound|memory_bound|multithread|nomultithread",
               "must be compute_bound, memory_bound, multithread or nomultithread"}},
    Directive{"licenses",
              {"[A-Za-z0-9_][A-Za-z0-9_.@-]*(:[0-9]{1,6})?"
               "(,[A-Za-z0-9_][A-Za-z0-9_.@-]*(:[0-9]{1,6})?)*",
               "must be such as matlab:2,fluent@server:1"}},
    Directive{"mail-type", kWords},
    Directive{"mail-user",
              {"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?",
               "must be an address"}},
    Directive{"mcs-label", kName},
    Directive{"mem-update",
              {"[0-9]{1,4}@[0-9:-]{1,20}", "must be a margin in percent and a delay: 20@30"}},
    Directive{"network", {"[A-Za-z0-9_=,-]{1,128}", "may hold letters, digits and _ = , -"}},
    Directive{"nice", {"-?[0-9]{1,10}", kCount.rule}},  // below 0: Slurm minds it of operators only
    Directive{"oom-kill-step", {"[01]?", "must be 0, 1 or \"\""}},
    Directive{"oversubscribe", kSwitch},
    Directive{"power", kWords},
    Directive{"prefer", kConstraint},
    Directive{"priority", kCount},
    Directive{"profile", kWords},
    Directive{"propagate",
              {"[A-Z]{2,10}(,[A-Z]{2,10}){0,15}", "must be ALL, NONE or such as NOFILE,STACK"}},
    Directive{"reboot", kSwitch},
    Directive{"resources",
              {"[A-Za-z0-9_.-]{1,64}(:[0-9]{1,9})?(,[A-Za-z0-9_.-]{1,64}(:[0-9]{1,9})?){0,7}",
               "must be such as flat:2,natural:1"}},
    Directive{"segment", {"[1-9][0-9]{0,4}", "must be a number of nodes"}},
    Directive{"sockets-per-node", kCount},
    Directive{"spread-job", kSwitch},
    Directive{"spread-segments", kSwitch},
    Directive{
        "switches",
        {"[0-9]{1,6}(@[0-9:-]{1,20})?", "must be a number, or with the longest wait: 1@01:00:00"}},
    Directive{"thread-spec", kCount},
    Directive{"threads-per-core", kCount},
    Directive{"tmp", kSize},
    Directive{"use-min-nodes", kSwitch},
    Directive{"wckey", {"[A-Za-z0-9_*][A-Za-z0-9_.-]{0,63}", kName.rule}},
};

struct Managed {
    const char* option;
    const char* use;
};

constexpr const char* kLogs =
    "is Lockstep's own: output is in the attempt's directory and under /v1/jobs/{id}/logs";
constexpr const char* kRanks = "is Lockstep's own: use /resources/ranks_per_node";
constexpr const char* kCpus = "is Lockstep's own: use /resources/cpus_per_rank";
constexpr const char* kGpusAreOurs = "is Lockstep's own: use /resources/gpus_per_node";
constexpr const char* kMemory = "is Lockstep's own: use /resources/memory_mb_per_node";
constexpr const char* kTimeLimit = "is Lockstep's own: use /resources/time_limit";
constexpr const char* kEnvironment = "is Lockstep's own: use /environment";
constexpr const char* kRequeue =
    "is Lockstep's own: every attempt is a new Slurm job, see /recovery/max_attempts";
constexpr const char* kIdentity = "is Lockstep's own: the job runs as the user of the daemon";
constexpr const char* kContainer = "is Lockstep's own: use /container";
constexpr const char* kClusters =
    "is of federations: lockstepd hands jobs to the cluster that it serves, each has its own";
constexpr const char* kPrints = "is Lockstep's own: it reads what sbatch answers";
constexpr const char* kCommand = "is Lockstep's own: use /command";
constexpr const char* kBinding =
    "is of srun's tasks, and the one that srun starts on a node is the agent: use "
    "/resources/binding";

// What decides which processes run where, as whom, with which files: a second word on it would
// contradict the spec.
constexpr std::array kManaged{
    Managed{"account", "has its own field: use /slurm/account"},
    Managed{"array", "is Lockstep's own: use /sweep"},
    Managed{"autocomplete", kPrints},
    Managed{"bbf", "names a file, which sbatch would read on lockstepd's machine: use bb"},
    Managed{"chdir", "is Lockstep's own: use /working_directory"},
    Managed{"cluster", kClusters},
    Managed{"clusters", kClusters},
    Managed{"constraint", "has its own field: use /slurm/constraint"},
    Managed{"container", kContainer},
    Managed{"container-id", kContainer},
    Managed{"container-type", kContainer},
    Managed{"context", kIdentity},
    Managed{"cpu-bind", kBinding},
    Managed{"cpus-per-gpu", kCpus},
    Managed{"cpus-per-task", kCpus},
    Managed{"dependency", "is Lockstep's own: use /after"},
    Managed{"error", kLogs},
    Managed{"exclude", "has its own field: use /slurm/exclude"},
    Managed{"exclusive", "has its own field: use /slurm/exclusive"},
    Managed{"export", kEnvironment},
    Managed{"export-file", kEnvironment},
    Managed{"external", "makes a job that starts nothing"},
    Managed{"get-user-env", kEnvironment},
    Managed{"gid", kIdentity},
    Managed{"gpu-bind", kGpusAreOurs},
    Managed{"gpus", kGpusAreOurs},
    Managed{"gpus-per-node", kGpusAreOurs},
    Managed{"gpus-per-socket", kGpusAreOurs},
    Managed{"gpus-per-task", kGpusAreOurs},
    Managed{"help", kPrints},
    Managed{"hetjob",
            "is not for a job of equal nodes, which every attempt is: use /roles for ranks that "
            "differ"},
    Managed{"hold", "is Lockstep's own: use /submission"},
    Managed{"ignore-pbs", "is of scripts that Lockstep does not write"},
    Managed{"input", kLogs},
    Managed{"job-name", "is Lockstep's own: use /name"},
    Managed{"kill-on-invalid-dep", "is Lockstep's own: use /after"},
    Managed{"mem", kMemory},
    Managed{"mem-bind", kBinding},
    Managed{"mem-per-cpu", kMemory},
    Managed{"mem-per-gpu", kMemory},
    Managed{"mincpus", kCpus},
    Managed{"no-kill", kRequeue},
    Managed{"no-requeue", kRequeue},
    Managed{"nodefile", "has its own field: use /slurm/nodelist"},
    Managed{"nodelist", "has its own field: use /slurm/nodelist"},
    Managed{"nodes", "is Lockstep's own: use /resources/nodes"},
    Managed{"ntasks", kRanks},
    Managed{"ntasks-per-core", kRanks},
    Managed{"ntasks-per-gpu", kRanks},
    Managed{"ntasks-per-node", kRanks},
    Managed{"ntasks-per-socket", kRanks},
    Managed{"ntasks-per-tres", kRanks},
    Managed{"open-mode", kLogs},
    Managed{"output", kLogs},
    Managed{
        "overcommit",
        "would give the agent one CPU and its ranks the same one: use /resources/cpus_per_rank"},
    Managed{"parsable", kPrints},
    Managed{"partition", "has its own field: use /slurm/partition"},
    Managed{"qos", "has its own field: use /slurm/qos"},
    Managed{"quiet", kPrints},
    Managed{"requeue", kRequeue},
    Managed{"reservation", "has its own field: use /slurm/reservation"},
    Managed{"resv-ports", "is of MPI in srun's steps: ranks get their ports from Lockstep"},
    Managed{"signal",
            "is Lockstep's own: use /checkpoint/signal and /checkpoint/seconds_before_timeout"},
    Managed{"stepmgr", "is of jobs with many steps, and an attempt has one"},
    Managed{"tasks-per-node", kRanks},
    Managed{"test-only", "is Lockstep's own: use /v1/jobs/render, lockstep submit --dry-run"},
    Managed{"time", kTimeLimit},
    Managed{"time-min", kTimeLimit},
    Managed{"tres-bind", kGpusAreOurs},
    Managed{"tres-per-task", kRanks},
    Managed{"uid", kIdentity},
    Managed{"usage", kPrints},
    Managed{"verbose", kPrints},
    Managed{"version", kPrints},
    Managed{"wait", "is Lockstep's own: use lockstep run --wait"},
    Managed{"wait-all-nodes", "is Lockstep's own: its agents wait for each other"},
    Managed{"wrap", kCommand},
    Managed{"x11", "needs a terminal of the user's own; lockstepd hands jobs in from none"},
};

template <class Table>
auto find_option(const Table& table, std::string_view option) {
    return std::find_if(table.begin(), table.end(),
                        [&](const auto& entry) { return option == entry.option; });
}

// Compiled once: a pattern of counted repetitions takes RE2 longer than the rest of a spec.
const RE2& compiled(const char* expression) {
    static std::mutex mutex;
    static std::map<const char*, std::unique_ptr<RE2>> all;
    const std::lock_guard lock{mutex};
    auto& found = all[expression];
    if (!found) {
        found = std::make_unique<RE2>(expression, RE2::Quiet);
        LOCKSTEP_CHECK(found->ok());
    }
    return *found;
}

bool matches(std::string_view text, const Pattern& pattern) {
    return RE2::FullMatch(re2::StringPiece{text.data(), text.size()}, compiled(pattern.expression));
}

void read_text(ObjectReader& in, std::string_view key, std::string& target, std::size_t max_bytes,
               const Pattern& pattern) {
    std::string text;
    in.string(key, text, max_bytes);
    if (text.empty()) {
        return;
    }
    if (matches(text, pattern)) {
        target = std::move(text);
    } else {
        in.error(key, pattern.rule);
    }
}

bool brackets_pair(std::string_view hosts) {
    bool open = false;
    for (const char c : hosts) {
        if ((c == '[' && open) || (c == ']' && !open)) {
            return false;
        }
        open = c == '[' || (open && c != ']');
    }
    return !open;
}

void read_hosts(ObjectReader& in, std::string_view key, std::string& target) {
    read_text(in, key, target, limits::kHostListBytes, kHosts);
    if (!brackets_pair(target)) {
        in.error(key, kHosts.rule);
    }
}

std::string unknown_option(std::string_view option) {
    if (option.starts_with('-')) {
        return "must be a long option without its dashes";
    }
    std::string text = "is not an option that Lockstep passes on; these are:";
    for (const auto& directive : kDirectives) {
        text += std::string{" "} + directive.option;
    }
    return text;
}

// "gpu:4,lustre:1" asks for GPUs beside /resources/gpus_per_node.
bool asks_for_gpus(std::string_view gres) {
    return matches(gres, {"(?i)(.*,)?gpu:.*", ""});
}

// … and these for parts of GPUs, which no job may have beside whole ones.
bool asks_for_parts_of_gpus(std::string_view gres) {
    return matches(gres, {"(?i)(.*,)?(mps|shard):.*", ""});
}

void read_directives(ObjectReader& slurm, SlurmSpec& out, std::vector<FieldError>& errors) {
    const Json* object = slurm.raw("directives");
    if (object == nullptr) {
        return;
    }
    if (!object->is_object()) {
        slurm.error("directives", "must be an object");
        return;
    }
    ObjectReader in{*object, slurm.pointer("directives"), errors};
    for (const auto& [option, value] : object->items()) {
        const auto known = find_option(kDirectives, option);
        if (known == kDirectives.end()) {
            const auto managed = find_option(kManaged, option);
            in.error(option.substr(0, limits::kTextBytes),
                     managed != kManaged.end() ? managed->use : unknown_option(option));
            continue;
        }
        std::string text;
        const auto before = errors.size();
        in.string(option, text, limits::kTextBytes);
        if (errors.size() != before) {
            continue;
        }
        if (!matches(text, known->pattern)) {
            in.error(option, known->pattern.rule);
        } else if (option == "gres" && asks_for_gpus(text)) {
            in.error(option, kGpusAreOurs);
        } else {
            out.directives[option] = std::move(text);
        }
    }
}

}  // namespace

void read_slurm(const Json& json, const std::string& pointer, SlurmSpec& out,
                std::vector<FieldError>& errors) {
    ObjectReader in{json, pointer, errors};
    read_text(in, "partition", out.partition, limits::kHostListBytes, kSeveralNames);
    read_text(in, "account", out.account, limits::kTextBytes, kName);
    read_text(in, "qos", out.qos, limits::kTextBytes, kName);
    read_text(in, "constraint", out.constraint, limits::kTextBytes, kConstraint);
    read_text(in, "reservation", out.reservation, limits::kHostListBytes, kSeveralNames);
    read_hosts(in, "nodelist", out.nodelist);
    read_hosts(in, "exclude", out.exclude);
    in.boolean("exclusive", out.exclusive);
    read_directives(in, out, errors);
    in.finish();
}

void check_against_resources(const SlurmSpec& slurm, const std::string& pointer,
                             const Resources& resources, std::vector<FieldError>& errors) {
    const auto given = [&](const char* option) -> const std::string* {
        const auto found = slurm.directives.find(option);
        return found == slurm.directives.end() ? nullptr : &found->second;
    };
    const auto wrong = [&](const char* option, std::string message) {
        errors.push_back({pointer + "/directives/" + option, std::move(message)});
    };
    if (const std::string* gres = given("gres");
        gres != nullptr && resources.gpus_per_node > 0 && asks_for_parts_of_gpus(*gres)) {
        wrong("gres",
              "asks for parts of GPUs, and /resources/gpus_per_node for whole ones: one of them");
    }
    if (slurm.exclusive && given("oversubscribe") != nullptr) {
        wrong("oversubscribe", "shares the nodes, and /slurm/exclusive does not: one of them");
    }
    // sbatch(1): more nodes than one segment are a multiple of it.
    if (const std::string* segment = given("segment"); segment != nullptr) {
        const std::int32_t nodes = resources.allocated_nodes();
        const std::int32_t size = std::stoi(*segment);
        if (nodes > size && nodes % size != 0) {
            wrong("segment", std::to_string(nodes) +
                                 (resources.spares > 0 ? " nodes with the spares" : " nodes") +
                                 " are not made of segments of " + *segment);
        }
    }
}

Json to_json(const SlurmSpec& slurm) {
    Json out = Json::object();
    const auto put = [&](const char* key, const std::string& value) {
        if (!value.empty()) {
            out[key] = value;
        }
    };
    put("partition", slurm.partition);
    put("account", slurm.account);
    put("qos", slurm.qos);
    put("constraint", slurm.constraint);
    put("reservation", slurm.reservation);
    put("nodelist", slurm.nodelist);
    put("exclude", slurm.exclude);
    if (slurm.exclusive) {
        out["exclusive"] = true;
    }
    if (!slurm.directives.empty()) {
        out["directives"] = Json::object();
        for (const auto& [option, value] : slurm.directives) {
            out["directives"][option] = value;
        }
    }
    return out;
}

std::vector<std::string_view> slurm_directives() {
    std::vector<std::string_view> out;
    out.reserve(kDirectives.size());
    for (const auto& directive : kDirectives) {
        out.emplace_back(directive.option);
    }
    return out;
}

}  // namespace lockstep
