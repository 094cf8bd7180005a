#include "job/model/spec/spec_environment.hpp"

#include "job/base/limits.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/spec/own_variables.hpp"
#include "job/model/spec/spec_fields.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

bool is_name_sign(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

// bash(1) exports a function as BASH_FUNC_<name>%%; `module` is one on most clusters.
bool is_shell_function(std::string_view text) {
    constexpr std::string_view kBefore = "BASH_FUNC_";
    constexpr std::string_view kBehind = "%%";
    return text.size() > kBefore.size() + kBehind.size() && text.starts_with(kBefore) &&
           text.ends_with(kBehind) && text.size() <= limits::kTextBytes;
}

constexpr std::string_view kNoVariable = "is not a name of an environment variable";

std::string_view wrong_variable(std::string_view name) {
    return !is_variable_name(name) ? kNoVariable
           : name.starts_with("LOCKSTEP_") && name != kPythonHooks && name != kNcclInspector
               ? "names that start with LOCKSTEP_ are Lockstep's own"
               : "";
}
std::string_view wrong_recorded(std::string_view name) {
    return is_shell_function(name) ? "" : wrong_variable(name);
}

void read_recorded(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors) {
    in.boolean("inherit_environment", spec.inherit_environment);
    read_map(in, "recorded_environment", spec.recorded_environment,
             {limits::kRecordedEnvironment, limits::kEnvironmentBytes, wrong_recorded}, errors);
    std::size_t bytes = 0;
    for (const auto& [name, value] : spec.recorded_environment) {
        bytes += name.size() + value.size() + 2;
    }
    if (bytes > limits::kRecordedEnvironmentBytes) {
        in.error(
            "recorded_environment",
            "has more than " + std::to_string(limits::kRecordedEnvironmentBytes >> 10U) + " KiB");
    }
    if (spec.inherit_environment && !in.has("recorded_environment")) {
        in.error("inherit_environment",
                 "needs recorded_environment, in which the command line (lockstep run, lockstep "
                 "submit) records the environment of its caller");
    } else if (!spec.inherit_environment && in.has("recorded_environment")) {
        in.error("recorded_environment", "has no effect without inherit_environment");
    }
}

bool begins_with_any(std::string_view name, const auto& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_one_of(std::string_view name, const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// The devices of an allocation: whoever gave it says which they are.
bool is_device_list(std::string_view name) {
    constexpr std::array<std::string_view, 6> kDeviceLists{
        "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",  "ZE_AFFINITY_MASK",   "NVIDIA_VISIBLE_DEVICES"};
    return is_one_of(name, kDeviceLists);
}

// What a process cannot do without, should the caller not have it.
bool is_basic(std::string_view name) {
    constexpr std::array<std::string_view, 8> kBasicNames{"PATH",  "HOME", "USER", "LOGNAME",
                                                          "SHELL", "LANG", "TZ",   "TMPDIR"};
    return is_one_of(name, kBasicNames);
}

// "$NAME" or "${NAME}" at the front of the text, or nothing.
std::string_view reference_at(std::string_view text) {
    const bool braces = text.substr(0, 2) == "${";
    const std::size_t from = braces ? 2 : 1;
    std::size_t to = from;
    while (to < text.size() && is_name_sign(text[to])) {
        ++to;
    }
    const bool named = to > from && (text[from] < '0' || text[from] > '9');
    if (!named || (braces && (to >= text.size() || text[to] != '}'))) {
        return {};
    }
    return text.substr(0, braces ? to + 1 : to);
}

void read_dollars_of(Json& value, const std::string& pointer, std::vector<FieldError>& errors) {
    if (!value.is_string()) {
        return;  // the parser says so
    }
    const auto& text = value.get_ref<const std::string&>();
    std::string out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '$') {
            out += text[at];
            continue;
        }
        if (text.compare(at, 2, "$$") == 0) {
            out += '$';
            ++at;
            continue;
        }
        if (const auto name = reference_at(std::string_view{text}.substr(at)); !name.empty()) {
            errors.push_back(
                {pointer, std::string{name.substr(0, limits::kTextBytes)} +
                              " would not be expanded on the nodes: the command line expands it "
                              "(lockstep submit, run), setup can set it there, and $$ is a dollar "
                              "sign"});
            return;
        }
        out += '$';
    }
    value = std::move(out);
}

}  // namespace

bool is_variable_name(std::string_view text) {
    return !text.empty() && text.size() <= limits::kTextBytes &&
           (text.front() < '0' || text.front() > '9') &&
           std::all_of(text.begin(), text.end(), is_name_sign);
}

void read_environment(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors) {
    read_map(in, "environment", spec.environment,
             {limits::kEnvironment, limits::kEnvironmentBytes, wrong_variable}, errors);
    read_recorded(in, spec, errors);
    in.string("setup", spec.setup, limits::kSetupBytes);
}

void put_environment(Json& out, const JobSpec& spec) {
    out["environment"] = Json::object();
    for (const auto& [name, value] : spec.environment) {
        out["environment"][name] = value;
    }
    if (spec.inherit_environment) {
        out["inherit_environment"] = true;
        Json recorded = Json::object();
        for (const auto& [name, value] : spec.recorded_environment) {
            recorded[name] = value;
        }
        out["recorded_environment"] = std::move(recorded);
    }
    if (!spec.setup.empty()) {
        out["setup"] = spec.setup;
    }
}

bool is_carried(std::string_view name) {
    constexpr std::array<std::string_view, 30> kPrefixes{
        "LOCKSTEP_", "SLURM_",         "SLURMD_",      "SBATCH_",      "SRUN_",    "SALLOC_",
        "SSH_",      "DBUS_",          "XDG_SESSION_", "XDG_SEAT",     "XDG_VTNR", "PMI_",
        "PMI2_",     "PMIX_",          "OMPI_COMM_",   "OMPI_MCA_ess", "PRTE_",    "MPI_LOCAL",
        "JSM_",      "MV2_COMM_WORLD", "TERM_PROGRAM", "VSCODE_",      "GNOME_",   "KITTY_",
        "KONSOLE_",  "ITERM_",         "WEZTERM_",     "TMUX",         "LESS",     "SYSTEMD_"};
    constexpr std::array<std::string_view, 34> kSessionNames{"_",
                                                             "PWD",
                                                             "OLDPWD",
                                                             "SHLVL",
                                                             "HOSTNAME",
                                                             "HOST",
                                                             "PS1",
                                                             "PS2",
                                                             "PROMPT_COMMAND",
                                                             "TERM",
                                                             "TERMCAP",
                                                             "COLORTERM",
                                                             "COLUMNS",
                                                             "LINES",
                                                             "LS_COLORS",
                                                             "STY",
                                                             "WINDOWID",
                                                             "WINDOW",
                                                             "DISPLAY",
                                                             "WAYLAND_DISPLAY",
                                                             "XAUTHORITY",
                                                             "DESKTOP_SESSION",
                                                             "SESSION_MANAGER",
                                                             "XDG_RUNTIME_DIR",
                                                             "XDG_CURRENT_DESKTOP",
                                                             "GPG_AGENT_INFO",
                                                             "GPG_TTY",
                                                             "KRB5CCNAME",
                                                             "MAIL",
                                                             "NOTIFY_SOCKET",
                                                             "JOURNAL_STREAM",
                                                             "INVOCATION_ID",
                                                             "LISTEN_FDS",
                                                             "ENVIRONMENT"};
    return !begins_with_any(name, kPrefixes) && !is_one_of(name, kSessionNames) &&
           !is_launchers(name);
}

bool is_secret_name(std::string_view name) {
    std::string upper{name};
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    constexpr std::array<std::string_view, 9> kParts{"TOKEN",  "SECRET",     "PASSWORD",
                                                     "PASSWD", "PASSPHRASE", "CREDENTIAL",
                                                     "APIKEY", "COOKIE",     "WEBHOOK"};
    if (std::any_of(kParts.begin(), kParts.end(),
                    [&](std::string_view part) { return upper.find(part) != std::string::npos; })) {
        return true;
    }
    // As a word: WANDB_API_KEY, SSH_KEY_2, PGPASS; not KEYBOARD, not MONKEY_PATCH.
    constexpr std::array<std::string_view, 5> kSecretWords{"KEY", "PASS", "PW", "PGPASS", "AUTH"};
    for (std::size_t at = 0; at <= upper.size();) {
        const std::size_t end = std::min(upper.find('_', at), upper.size());
        if (is_one_of(std::string_view{upper}.substr(at, end - at), kSecretWords)) {
            return true;
        }
        at = end + 1;
    }
    return false;
}

void mask_environment(Json& spec) {
    if (!spec.is_object()) {
        return;
    }
    for (const char* key : {"environment", "recorded_environment"}) {
        const auto found = spec.find(key);
        if (found == spec.end() || !found->is_object()) {
            continue;
        }
        for (auto& [name, value] : found->items()) {
            value = std::string{kMaskedValue};
        }
    }
}

std::map<std::string, std::string> base_environment(const JobSpec& spec,
                                                    const Variables& inherited) {
    if (!spec.inherit_environment) {
        Variables out = inherited;
        if (!spec.setup.empty()) {
            out.erase("OMP_NUM_THREADS");  // behind the setup it would pass for what that has set
        }
        return out;
    }
    const bool in_slurm = inherited.contains("SLURM_JOB_ID");
    Variables out;
    for (const auto& [name, value] : inherited) {
        const bool nodes_own =
            in_slurm || is_basic(name) || is_device_list(name) || !is_carried(name);
        if (nodes_own && name != "OMP_NUM_THREADS") {  // it was not chosen for this job
            out.emplace(name, value);
        }
    }
    for (const auto& [name, value] : spec.recorded_environment) {
        const bool given =
            is_device_list(name) && (spec.resources.gpus_per_node > 0 || inherited.contains(name));
        if (is_carried(name) && !given) {
            out[name] = value;
        }
    }
    return out;
}

void read_dollars(Json& document, std::vector<FieldError>& errors) {
    if (!document.is_object()) {
        return;
    }
    if (const auto map = document.find("environment"); map != document.end() && map->is_object()) {
        for (auto& [name, value] : map->items()) {
            read_dollars_of(value, "/environment/" + pointer_token(name), errors);
        }
    }
    const auto sweep = document.find("sweep");
    if (sweep == document.end() || !sweep->is_object()) {
        return;
    }
    const auto parameters = sweep->find("parameters");
    if (parameters == sweep->end() || !parameters->is_object()) {
        return;
    }
    for (auto& [path, values] : parameters->items()) {
        if (!path.starts_with("environment.") || !values.is_array()) {
            continue;
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
            read_dollars_of(values[i],
                            "/sweep/parameters/" + pointer_token(path) + "/" + std::to_string(i),
                            errors);
        }
    }
}

void refuse_masked(const Json& document, std::vector<FieldError>& errors) {
    if (!document.is_object()) {
        return;
    }
    for (const char* key : {"environment", "recorded_environment"}) {
        const auto map = document.find(key);
        if (map == document.end() || !map->is_object()) {
            continue;
        }
        for (const auto& [name, value] : map->items()) {
            if (!value.is_string() || value.get_ref<const std::string&>() != kMaskedValue) {
                continue;
            }
            if (errors.size() >= kMaskedNamed) {
                return;
            }
            errors.push_back({std::string{"/"} + key + "/" + pointer_token(name),
                              "*** stands for a value that only the job's owner is shown: give " +
                                  name.substr(0, limits::kTextBytes) +
                                  " its value, or leave it out"});
        }
    }
}

void refuse_own_recorded(const Json& document, std::vector<FieldError>& errors) {
    const auto map = document.is_object() ? document.find("recorded_environment") : document.end();
    if (map == document.end() || !map->is_object()) {
        return;
    }
    for (const std::string_view name : {kPythonHooks, kNcclInspector}) {
        if (map->contains(name)) {
            errors.push_back({"/recorded_environment/" + std::string{name},
                              "has no effect here: it belongs in environment"});
        }
    }
}

std::string dollars_doubled(std::string_view value) {
    std::string out;
    for (const char c : value) {
        out += c;
        out += c == '$' ? "$" : "";
    }
    return out;
}

Result<Json> sent_document(std::string_view body) {
    auto json = parse_json(body);
    if (!json) {
        return json;
    }
    std::vector<FieldError> values;
    read_dollars(*json, values);
    refuse_masked(*json, values);
    if (!values.empty()) {
        return fail(field_errors(std::move(values)));
    }
    return json;
}

}  // namespace lockstep
