#include "job/cli/caller.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/own_variables.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace lockstep::cli {
namespace {

bool is_word_sign(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

// The folder's name as the shell has it, if that is still this folder: on many clusters the real
// path of a home is another on every machine.
std::string current_directory(const std::string& shells) {
    struct stat one{};
    struct stat other{};
    if (!shells.empty() && shells.front() == '/' && ::stat(shells.c_str(), &one) == 0 &&
        ::stat(".", &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino) {
        return shells;
    }
    std::error_code ec;
    return std::filesystem::current_path(ec).string();
}

bool is_program(const std::string& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
}

// printable() changes nothing in valid UTF-8 but control characters, which a variable may hold.
bool is_utf8(const std::string& text) {
    const Json json = text;
    try {
        return !json.dump().empty();
    } catch (const Json::exception&) {
        return false;
    }
}

std::string why_not(const std::string& name, const std::string& value) {
    if (name.size() > limits::kTextBytes) {
        return "its name is too long";
    }
    if (!is_utf8(name) || !is_utf8(value)) {
        return "it is not UTF-8";
    }
    if (value.size() > limits::kEnvironmentBytes) {
        return std::to_string(value.size() >> 10U) + " KiB, at most " +
               std::to_string(limits::kEnvironmentBytes >> 10U);
    }
    return "";
}

// The largest go first, until all fit.
void shrink(Recorded& out) {
    while (out.bytes > limits::kRecordedEnvironmentBytes ||
           out.variables.size() > limits::kRecordedEnvironment) {
        auto largest = out.variables.begin();
        for (auto at = out.variables.begin(); at != out.variables.end(); ++at) {
            if (at->get_ref<const std::string&>().size() >
                largest->get_ref<const std::string&>().size()) {
                largest = at;
            }
        }
        const std::string name = largest.key();
        const std::size_t size = largest->get_ref<const std::string&>().size();
        out.left_out.push_back(name + ": the environment is too large for a job, and this is " +
                               std::to_string(size >> 10U) + " KiB of it");
        out.bytes -= name.size() + size + 2;
        out.variables.erase(name);
    }
}

}  // namespace

Caller Caller::here() {
    Caller out;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text{*entry};
        const auto equals = text.find('=');
        if (equals != std::string_view::npos && equals > 0) {
            out.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
        }
    }
    out.directory = current_directory(out.variable("PWD"));
    return out;
}

std::string Caller::variable(const std::string& name) const {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
}

Result<std::string> expand_variables(std::string_view text, const Caller& caller) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        if (text[at] != '$') {
            out += text[at++];
            continue;
        }
        if (text.substr(at, 2) == "$$") {
            out += '$';
            at += 2;
            continue;
        }
        const bool braces = text.substr(at, 2) == "${";
        const std::size_t from = at + (braces ? 2 : 1);
        std::size_t to = from;
        while (to < text.size() && is_word_sign(text[to])) {
            ++to;
        }
        const bool closed = !braces || (to < text.size() && text[to] == '}');
        if (to == from || (text[from] >= '0' && text[from] <= '9') || !closed) {
            out += text[at++];
            continue;
        }
        const std::string name{text.substr(from, to - from)};
        const auto found = caller.environment.find(name);
        if (found == caller.environment.end()) {
            return fail(Errc::not_found, "$" + name + " is not set here; $$ is a dollar sign");
        }
        out += found->second;
        at = to + (braces ? 1 : 0);
    }
    return out;
}

Result<std::string> resolve_path(std::string_view text, const Caller& caller,
                                 const std::string& base) {
    auto expanded = expand_variables(text, caller);
    if (!expanded) {
        return expanded;
    }
    std::string path = std::move(*expanded);
    if (path == "~" || path.starts_with("~/")) {
        const std::string home = caller.variable("HOME");
        if (home.empty()) {
            return fail(Errc::not_found, "~: HOME is not set here");
        }
        path = home + path.substr(1);
    }
    if (!path.empty() && path.front() != '/') {
        path = base + "/" + path;
    }
    std::string plain = std::filesystem::path{path}.lexically_normal().string();
    while (plain.size() > 1 && plain.back() == '/') {
        plain.pop_back();
    }
    return plain;
}

std::string environment_programs(const Caller& caller) {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        if (const std::string prefix = caller.variable(name);
            !prefix.empty() && is_program(prefix + "/bin/python")) {
            return prefix + "/bin";
        }
    }
    return "";
}

Recorded record_environment(const Caller& caller) {
    Recorded out;
    for (const auto& [name, value] : caller.environment) {
        if (!is_carried(name)) {
            ++out.stayed;
            continue;
        }
        const bool shells = name.starts_with("BASH_FUNC_") && name.ends_with("%%");
        if (!is_variable_name(name) && !shells) {
            ++out.stayed;  // no shell could name it either
            continue;
        }
        if (const std::string why = why_not(name, value); !why.empty()) {
            out.left_out.push_back(printable(name.substr(0, 64)) + ": " + why);
            continue;
        }
        out.variables[name] = value;
        out.bytes += name.size() + value.size() + 2;
    }
    if (const std::string programs = environment_programs(caller); !programs.empty()) {
        const std::string path = caller.variable("PATH");
        const auto folders = split(path, ':');
        if (std::find(folders.begin(), folders.end(), programs) == folders.end()) {
            out.variables["PATH"] = programs + (path.empty() ? "" : ":" + path);
            out.bytes += programs.size() + 1;
        }
    }
    shrink(out);
    return out;
}

void add_own_variables(Json& spec, const Caller& caller) {
    for (const std::string_view one : {kPythonHooks, kNcclInspector}) {
        const std::string name{one};
        const auto given = spec.find("environment");
        const bool open = given == spec.end() || (given->is_object() && !given->contains(name));
        if (open && caller.environment.contains(name)) {
            spec["environment"][name] = dollars_doubled(caller.variable(name));
        }
    }
}

std::optional<std::string> find_on_path(const std::string& name, const Caller& caller) {
    if (name.find('/') != std::string::npos) {
        const auto path = resolve_path(name, caller, caller.directory);
        return path && is_program(*path) ? std::optional{*path} : std::nullopt;
    }
    std::string path = caller.variable("PATH");
    if (const std::string programs = environment_programs(caller); !programs.empty()) {
        const auto folders = split(path, ':');
        if (std::find(folders.begin(), folders.end(), programs) == folders.end()) {
            path.insert(0, programs + ":");
        }
    }
    for (const std::string& folder : split(path, ':')) {
        std::string found = folder.empty() ? caller.directory : folder;
        if (!folder.empty() && folder.front() != '/') {
            found.insert(0, caller.directory + "/");
        }
        found.append("/").append(name);
        if (is_program(found)) {
            return found;
        }
    }
    return std::nullopt;
}

}  // namespace lockstep::cli
