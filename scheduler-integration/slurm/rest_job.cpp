// size: the table of options and their names in each version of the API
#include "scheduler-integration/slurm/rest_job.hpp"

#include "job/base/clock.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace lockstep::rest {
namespace {

// How a value is written. Where several are needed for one directive, or they depend on more than
// its value, it is one of the functions below.
enum class Form {
    none,     // there is no such property
    text,     // as it stands on the #SBATCH line
    integer,  // a plain number
    number,   // {"set": true, "infinite": false, "number": n}
    yes,      // true
    no,       // false
    list,     // an array of the one text
    special,
};

struct Rule {
    std::string_view option;
    std::string_view old_name;  // of v0.0.38
    Form old_form;
    std::string_view name;  // from v0.0.39 on, or `since`
    Form form;
    int since = 39;
};

// v0.0.38 was seen live (22.05.8): each of these that Slurm 22.05 takes gives the same job as
// sbatch does, but for those marked none:
//   contiguous, network, power, switches: "Disabled key";
//   batch: slurmrestd dies of it; bb: not tried;
//   distribution: overwritten by slurmrestd;
//   hint: without the threads per core that sbatch derives from it.
// v0.0.42 to v0.0.45 were seen live (26.05.3), compared likewise. The rest is from the sources
// named in the header. From v0.0.39 on nothing stands for: hint, power, resources and
// extra-node-info; gres-flags' task sharing, whose flags come and go.
constexpr std::array kRules{
    Rule{"account", "account", Form::text, "account", Form::text},
    Rule{"acctg-freq", "account_gather_frequency", Form::text, "account_gather_frequency",
         Form::text},
    Rule{"batch", "", Form::none, "batch_features", Form::text},
    Rule{"bb", "", Form::none, "burst_buffer", Form::text},
    Rule{"begin", "begin_time", Form::text, "begin_time", Form::special},
    Rule{"chdir", "current_working_directory", Form::text, "current_working_directory", Form::text},
    Rule{"cluster-constraint", "cluster_constraint", Form::text, "cluster_constraint", Form::text},
    Rule{"comment", "comment", Form::text, "comment", Form::text},
    Rule{"consolidate-segments", "", Form::none, "flags", Form::special, 44},
    Rule{"constraint", "constraints", Form::text, "constraints", Form::text},
    Rule{"contiguous", "", Form::none, "contiguous", Form::yes},
    Rule{"core-spec", "core_specification", Form::integer, "core_specification", Form::integer},
    Rule{"cores-per-socket", "cores_per_socket", Form::integer, "cores_per_socket", Form::integer,
         45},
    Rule{"cpu-freq", "cpu_frequency", Form::text, "cpu_frequency", Form::text},
    Rule{"cpus-per-task", "cpus_per_task", Form::integer, "cpus_per_task", Form::integer},
    Rule{"deadline", "deadline", Form::text, "deadline", Form::special},
    Rule{"delay-boot", "delay_boot", Form::text, "delay_boot", Form::special},
    Rule{"distribution", "", Form::none, "distribution", Form::text},
    Rule{"exclude", "exclude_nodes", Form::text, "excluded_nodes", Form::list},
    Rule{"exclusive", "exclusive", Form::special, "shared", Form::special},
    Rule{"export", "environment", Form::special, "environment", Form::special},
    Rule{"extra", "", Form::none, "extra", Form::text},
    Rule{"extra-node-info", "", Form::none, "", Form::none},
    Rule{"gpus-per-node", "gpus_per_node", Form::text, "tres_per_node", Form::special},
    Rule{"gres", "gres", Form::text, "tres_per_node", Form::special},
    Rule{"gpu-freq", "tres_frequency", Form::special, "tres_freq", Form::special},
    Rule{"gres-flags", "gres_flags", Form::text, "flags", Form::special},
    Rule{"hint", "", Form::none, "", Form::none},
    Rule{"job-name", "name", Form::text, "name", Form::text},
    Rule{"kill-on-invalid-dep", "kill_on_invalid_dependency", Form::text, "flags", Form::special},
    Rule{"licenses", "licenses", Form::text, "licenses", Form::text},
    Rule{"mail-type", "mail_type", Form::text, "mail_type", Form::special},
    Rule{"mail-user", "mail_user", Form::text, "mail_user", Form::text},
    Rule{"mcs-label", "mcs_label", Form::text, "mcs_label", Form::text},
    Rule{"mem", "memory_per_node", Form::text, "memory_per_node", Form::special},
    Rule{"mem-update", "", Form::none, "memory_update_margin", Form::special, 45},
    Rule{"network", "", Form::none, "network", Form::text},
    Rule{"nice", "nice", Form::special, "nice", Form::special},
    Rule{"no-kill", "no_kill", Form::yes, "kill_on_node_fail", Form::no},
    Rule{"no-requeue", "no_requeue", Form::yes, "requeue", Form::no},
    Rule{"nodelist", "nodelist", Form::text, "required_nodes", Form::list},
    Rule{"nodes", "nodes", Form::text, "nodes", Form::text},
    Rule{"ntasks-per-node", "tasks_per_node", Form::integer, "tasks_per_node", Form::integer},
    Rule{"oom-kill-step", "", Form::none, "oom_kill_step", Form::special, 42},
    Rule{"open-mode", "open_mode", Form::text, "open_mode", Form::special},
    Rule{"output", "standard_output", Form::text, "standard_output", Form::text},
    Rule{"oversubscribe", "", Form::none, "shared", Form::special},
    Rule{"partition", "partition", Form::text, "partition", Form::text},
    Rule{"power", "", Form::none, "", Form::none},
    Rule{"prefer", "prefer", Form::text, "prefer", Form::text},
    Rule{"priority", "priority", Form::integer, "priority", Form::special},
    Rule{"profile", "profile", Form::text, "profile", Form::special},
    Rule{"propagate", "", Form::none, "", Form::none},
    Rule{"qos", "qos", Form::text, "qos", Form::text},
    Rule{"reboot", "", Form::none, "reboot", Form::yes},
    Rule{"reservation", "reservation", Form::text, "reservation", Form::text},
    Rule{"resources", "", Form::none, "", Form::none},
    Rule{"segment", "", Form::none, "segment_size", Form::special, 41},
    Rule{"signal", "signal", Form::text, "kill_warning_signal", Form::special},
    Rule{"sockets-per-node", "sockets_per_node", Form::integer, "sockets_per_node", Form::integer},
    Rule{"spread-job", "spread_job", Form::yes, "flags", Form::special},
    Rule{"spread-segments", "", Form::none, "flags", Form::special, 44},
    Rule{"switches", "", Form::none, "required_switches", Form::special},
    Rule{"thread-spec", "thread_specification", Form::integer, "thread_specification",
         Form::integer},
    Rule{"threads-per-core", "threads_per_core", Form::integer, "threads_per_core", Form::integer},
    Rule{"time", "time_limit", Form::text, "time_limit", Form::special},
    Rule{"tmp", "temporary_disk_per_node", Form::text, "temporary_disk_per_node", Form::special},
    Rule{"use-min-nodes", "", Form::none, "flags", Form::special},
    Rule{"wckey", "wckey", Form::text, "wckey", Form::text},
};

Json number_object(std::int64_t value) {
    Json out = Json::object();
    out["set"] = true;
    out["infinite"] = false;
    out["number"] = value;
    return out;
}

// One job as it is filled, directive by directive.
class Job {
  public:
    explicit Job(const JobSite& site) : site_(site) {}

    Status take(const Directive& directive);
    // What sbatch derives from several options before it sends them.
    Status complete();
    Json& properties() { return job_; }

  private:
    bool old() const { return site_.parser == 38; }
    Status put(const Rule& rule, const std::string& value);
    Status special(std::string_view option, const std::string& value);
    bool sizes_and_times(std::string_view option, const std::string& value, bool& good);
    bool words(std::string_view option, const std::string& value, bool& good);
    bool flags(std::string_view option, const std::string& value, bool& good);
    void set(std::string_view name, Json value) { job_[std::string{name}] = std::move(value); }
    void flag(std::string_view word) { job_["flags"].push_back(std::string{word}); }
    // A number that v0.0.39 still wants plain.
    Json late_number(std::int64_t value) const {
        return site_.parser >= 40 ? number_object(value) : Json(value);
    }
    void environment();
    void tres_per_node(const std::string& list);

    const JobSite& site_;
    Json job_ = Json::object();
    std::optional<std::int64_t> nodes_;
    std::int64_t tasks_per_node_ = 1;
    std::int64_t cpus_per_task_ = 1;
};

Status Job::take(const Directive& directive) {
    const auto rule = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const Rule& one) { return one.option == directive.option; });
    const std::string name = "--" + directive.option;
    if (rule == kRules.end()) {
        return fail(Errc::invalid, "the batch script asks for " + name +
                                       ", which Lockstep cannot say to slurmrestd");
    }
    if ((old() ? rule->old_form : rule->form) == Form::none ||
        (!old() && site_.parser < rule->since)) {
        return fail(Errc::invalid, "slurmrestd's " + version_text(site_.parser) + " cannot take " +
                                       name + ": leave it out, or use Slurm's own programs");
    }
    const Status done = put(*rule, directive.value);
    return done ? done
                : fail(Errc::invalid, name + "=" + printable(directive.value) + ": slurmrestd's " +
                                          version_text(site_.parser) + " has no such value");
}

Status Job::put(const Rule& rule, const std::string& value) {
    const std::string_view name = old() ? rule.old_name : rule.name;
    const auto number = rows::number(value);
    if (rule.option == "nodes") {
        nodes_ = number;
    } else if (rule.option == "ntasks-per-node") {
        tasks_per_node_ = number.value_or(0);
    } else if (rule.option == "cpus-per-task") {
        cpus_per_task_ = number.value_or(0);
    }
    const Form form = old() ? rule.old_form : rule.form;
    if ((form == Form::integer || form == Form::number) && !number) {
        return fail(Errc::invalid, "no number");
    }
    switch (form) {
        case Form::text:
            set(name, value);
            return {};
        case Form::integer:
            set(name, *number);
            return {};
        case Form::number:
            set(name, number_object(*number));
            return {};
        case Form::yes:
            set(name, true);
            return {};
        case Form::no:
            set(name, false);
            return {};
        case Form::list:
            set(name, Json::array({value}));
            return {};
        case Form::none:
        case Form::special:
            break;
    }
    return special(rule.option, value);
}

Status Job::special(std::string_view option, const std::string& value) {
    bool good = true;
    if (option == "export") {
        // What the script gets either way is the environment written here.
        good = value == "ALL" || value == "NIL";
        environment();
    } else if (option == "exclusive") {
        good = value.empty();
        if (old()) {
            set("exclusive", "exclusive");
        } else {
            set("shared", Json::array({"none"}));
        }
    } else if (option == "oversubscribe") {
        set("shared", Json::array({"oversubscribe"}));
    } else if (option == "gpus-per-node") {
        tres_per_node("gpu:" + value);
    } else if (option == "gres") {
        tres_per_node(value);
    } else if (option == "gpu-freq") {  // sbatch's own translation
        set(old() ? "tres_frequency" : "tres_freq", "gpu:" + value);
    } else if (option == "nice") {
        const auto number = to_int(value);
        good = number.has_value();
        set("nice", number.value_or(0));
    } else if (option == "signal") {
        const auto at_sign = value.find('@');
        const auto seconds = at_sign == std::string::npos ? std::optional<std::int64_t>{60}
                                                          // sbatch(1)
                                                          : rows::number(value.substr(at_sign + 1));
        const std::string name = value.substr(0, at_sign);
        good = seconds && *seconds <= 65'535 && !name.empty() &&
               name.find(':') == std::string::npos;  // "B:": nothing we write
        set("kill_warning_signal", name);
        set("kill_warning_delay", number_object(seconds.value_or(0)));
    } else if (!sizes_and_times(option, value, good) && !words(option, value, good) &&
               !flags(option, value, good)) {
        good = false;
    }
    return good ? Status{} : fail(Errc::invalid, "no such value");
}

bool Job::sizes_and_times(std::string_view option, const std::string& value, bool& good) {
    if (option == "begin" || option == "deadline") {
        const auto time = point_in_time(value, site_.now);
        good = time.has_value();
        set(option == "begin" ? "begin_time" : "deadline",
            option == "begin" ? late_number(time.value_or(0)) : Json(time.value_or(0)));
    } else if (option == "delay-boot") {  // minutes for sbatch, seconds here
        const auto minutes = rows::number(value);
        good = minutes && *minutes < 10'000'000;
        set("delay_boot", minutes.value_or(0) * 60);
    } else if (option == "time") {  // minutes, a part of one counts whole
        const auto seconds = parse_time_limit(value);
        good = seconds.has_value();
        set("time_limit", number_object(good ? (*seconds + 59) / 60 : 0));
    } else if (option == "mem" || option == "tmp") {
        const auto size = megabytes(value);
        good = size.has_value();
        if (option == "mem") {
            set("memory_per_node", number_object(size.value_or(0)));
        } else {
            set("temporary_disk_per_node", size.value_or(0));
        }
    } else if (option == "priority") {
        const auto number = rows::number(value);
        good = number.has_value();
        set("priority", late_number(number.value_or(0)));
    } else if (option == "oom-kill-step") {  // without a value 1, as sbatch(1) has it
        const auto number = rows::number(value.empty() ? "1" : value);
        good = number && *number <= 1;
        set("oom_kill_step", number.value_or(0));
    } else if (option == "segment") {
        const auto size = rows::number(value);
        good = size && *size > 0 && *size < 65'534;
        set("segment_size", number_object(size.value_or(0)));
    } else if (option == "mem-update") {  // minutes, a part of one counts whole
        const auto at_sign = value.find('@');
        const auto margin = rows::number(value.substr(0, at_sign));
        const auto delay = parse_time_limit(
            at_sign == std::string::npos ? std::string{} : value.substr(at_sign + 1));
        good = margin && delay && *margin < 65'534;
        set("memory_update_margin", margin.value_or(0));
        set("memory_update_delay", good ? (*delay + 59) / 60 : 0);
    } else if (option == "switches") {
        const auto at_sign = value.find('@');
        const auto count = rows::number(value.substr(0, at_sign));
        good = count.has_value();
        set("required_switches", number_object(count.value_or(0)));
        if (at_sign != std::string::npos) {
            const auto wait = parse_time_limit(value.substr(at_sign + 1));
            good = good && wait.has_value();
            set("wait_for_switch", wait.value_or(0));
        }
    } else {
        return false;
    }
    return true;
}

bool Job::words(std::string_view option, const std::string& value, bool& good) {
    using Word = std::pair<std::string_view, std::string_view>;
    // sbatch(1)'s words and those of PARSER_FLAG_ARRAY(JOB_MAIL_FLAGS, ACCT_GATHER_PROFILE).
    static constexpr std::array<Word, 17> kMail{{{"BEGIN", "BEGIN"},
                                                 {"END", "END"},
                                                 {"FAIL", "FAIL"},
                                                 {"REQUEUE", "REQUEUE"},
                                                 {"STAGE_OUT", "STAGE_OUT"},
                                                 {"TIME_LIMIT", "TIME=100%"},
                                                 {"TIME_LIMIT_90", "TIME=90%"},
                                                 {"TIME_LIMIT_80", "TIME=80%"},
                                                 {"TIME_LIMIT_50", "TIME=50%"},
                                                 {"ARRAY_TASKS", "ARRAY_TASKS"},
                                                 {"INVALID_DEPEND", "INVALID_DEPENDENCY"},
                                                 {"ALL", "INVALID_DEPENDENCY"},
                                                 {"ALL", "BEGIN"},
                                                 {"ALL", "END"},
                                                 {"ALL", "FAIL"},
                                                 {"ALL", "REQUEUE"},
                                                 {"ALL", "STAGE_OUT"}}};
    static constexpr std::array<Word, 9> kProfile{{{"NONE", "NONE"},
                                                   {"ENERGY", "ENERGY"},
                                                   {"LUSTRE", "LUSTRE"},
                                                   {"NETWORK", "NETWORK"},
                                                   {"TASK", "TASK"},
                                                   {"ALL", "ENERGY"},
                                                   {"ALL", "LUSTRE"},
                                                   {"ALL", "NETWORK"},
                                                   {"ALL", "TASK"}}};
    const auto translate = [&](const char* name, const auto& table) {
        Json out = Json::array();
        for (std::string word : split(value, ',')) {
            std::transform(word.begin(), word.end(), word.begin(),
                           [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
            bool known = word == "NONE" && option == "mail-type";
            for (const auto& [from, to] : table) {
                if (from == word) {
                    out.push_back(std::string{to});
                    known = true;
                }
            }
            good = good && known;
        }
        set(name, std::move(out));
    };
    if (option == "mail-type") {
        translate("mail_type", kMail);
    } else if (option == "profile") {
        translate("profile", kProfile);
    } else if (option == "open-mode") {
        good = value == "append" || value == "truncate";
        set("open_mode", Json::array({value == "append" ? "APPEND" : "TRUNCATE"}));
    } else {
        return false;
    }
    return true;
}

// PARSER_FLAG_ARRAY(JOB_FLAGS).
bool Job::flags(std::string_view option, const std::string& value, bool& good) {
    if (option == "kill-on-invalid-dep") {
        good = value == "yes" || value == "no";
        flag(value == "yes" ? "KILL_INVALID_DEPENDENCY" : "NO_KILL_INVALID_DEPENDENCY");
    } else if (option == "spread-job") {
        flag("SPREAD_JOB");
    } else if (option == "consolidate-segments") {
        flag("CONSOLIDATE_SEGMENTS");
    } else if (option == "spread-segments") {
        flag("SPREAD_SEGMENTS");
    } else if (option == "use-min-nodes") {
        flag("PREFER_MINIMUM_NODE_COUNT");
    } else if (option == "gres-flags" && value == "enforce-binding") {
        flag("GRES_BINDING_ENFORCED");
    } else if (option == "gres-flags" && value == "disable-binding") {
        flag(site_.parser == 39 ? "GRED_BINDING_DISABLED" : "GRES_BINDING_DISABLED");  // sic
    } else {
        return false;
    }
    return true;
}

// The one that sbatch has when lockstepd runs it (slurm_cli.cpp). Slurm refuses a job without any.
void Job::environment() {
    std::vector<std::pair<std::string, std::string>> entries{
        {"PATH", "/usr/bin:/bin"}, {"USER", site_.user}, {"LOGNAME", site_.user}};
    if (!site_.home.empty()) {
        entries.emplace_back("HOME", site_.home);
    }
    entries.insert(entries.end(), site_.limits.begin(), site_.limits.end());
    Json out = old() ? Json::object() : Json::array();
    for (const auto& [name, value] : entries) {
        if (old()) {
            out[name] = value;
        } else {
            out.push_back(name + "=" + value);
        }
    }
    set("environment", std::move(out));
}

// "gpu:2,lustre:1" beside what is there. Slurm writes gres:gpu:2 up to 23.02 and gres/gpu:2 after.
void Job::tres_per_node(const std::string& list) {
    std::string all;
    if (const auto there = job_.find("tres_per_node"); there != job_.end()) {
        all = there->get<std::string>();
    }
    for (const std::string& one : split(list, ',')) {
        all += (all.empty() ? "" : ",") + std::string{site_.parser == 39 ? "gres:" : "gres/"} + one;
    }
    set("tres_per_node", all);
}

Status Job::complete() {
    if (!job_.contains("environment")) {
        environment();
    }
    if (!nodes_ || *nodes_ < 1 || tasks_per_node_ < 1 || cpus_per_task_ < 1) {
        return fail(Errc::invalid, "the batch script does not say how many nodes, tasks and CPUs");
    }
    const std::int64_t tasks = *nodes_ * tasks_per_node_;
    // Without the first, v0.0.38 asks for the CPUs of one task; data parsers take the CPUs as they
    // are told.
    set("tasks", tasks);
    if (!old()) {
        set("minimum_cpus", tasks * cpus_per_task_);
    }
    return {};
}

}  // namespace

std::string version_text(int parser) {
    return "v0.0." + std::to_string(parser);
}

Result<std::string> submission(std::string_view script, const JobSite& site) {
    // JSON is UTF-8: other bytes would arrive changed. Ours are ASCII.
    const bool ascii = std::all_of(script.begin(), script.end(),
                                   [](char c) { return c == '\n' || (c >= ' ' && c < '\x7f'); });
    if (!ascii) {
        return fail(Errc::invalid, "the batch script holds other characters than ASCII");
    }
    const auto directives = read_directives(script);
    LOCKSTEP_TRY(directives);
    Job job{site};
    for (const Directive& directive : *directives) {
        LOCKSTEP_TRY(job.take(directive));
    }
    LOCKSTEP_TRY(job.complete());
    Json body = Json::object();
    if (site.parser <= 40) {
        body["script"] = std::string{script};
    } else {
        job.properties()["script"] = std::string{script};
    }
    body["job"] = std::move(job.properties());
    return dump_json(body);
}

}  // namespace lockstep::rest
