#include "job/agent/node/job_environment.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/spec_environment.hpp"
#include "job/model/spec/spec_secrets.hpp"
#include "job/model/state.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

using Variables = JobEnvironment::Variables;

// $1: a folder of this agent's alone; $2: where the output goes; then options of env(1). A login
// shell has read the system's and the user's files before (they define `module`); what they have
// changed of the caller's variables, PATH above all, is put back. Secrets come by variables of
// their own, which those files do not know, and no file has them. Stops at the first command that
// fails.
constexpr const char* kSetupBody = R"(lockstep_setup=$1
exec >"$2" 2>&1
. "$lockstep_setup/caller" 2>/dev/null
for lockstep_secret in "${!LOCKSTEP_SECRET_@}"; do
    export "${lockstep_secret#LOCKSTEP_SECRET_}=${!lockstep_secret}"
    unset "$lockstep_secret"
done
unset lockstep_secret
set -eE
trap 'printf "%s\n" "line $LINENO: $BASH_COMMAND" >"$lockstep_setup/failed"' ERR
. "$lockstep_setup/text"
trap - ERR
set +e
exec /usr/bin/env "${@:3}" -0 >"$lockstep_setup/environment"
)";

std::string shell_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'') {
            out += "'\\''";
        } else {
            out += c;
        }
    }
    return out + "'";
}

std::string exports_of(const Variables& variables) {
    std::string out;
    for (const auto& [name, value] : variables) {
        if (is_variable_name(name) && is_carried(name)) {
            out += "export " + name + "=" + shell_quoted(value) + "\n";
        }
    }
    return out;
}

// What `env -0` prints, without what the shell says about itself.
Variables parse_environment(std::string_view text) {
    Variables out;
    for (const std::string& entry : split(text, '\0')) {
        const auto equals = entry.find('=');
        if (equals == std::string::npos || equals == 0) {
            continue;
        }
        std::string name = entry.substr(0, equals);
        if (name != "_" && name != "SHLVL" && name != "PWD" && name != "OLDPWD") {
            out.emplace(std::move(name), entry.substr(equals + 1));
        }
    }
    return out;
}

bool is_own_folder(const std::string& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
}

// A folder that the caller has and this node does not is no use: HOME and TMPDIR are then the
// node's.
void keep_folders(Variables& base, const Variables& own) {
    for (const char* name : {"HOME", "TMPDIR"}) {
        const auto found = base.find(name);
        if (found == base.end() || is_own_folder(found->second)) {
            continue;
        }
        if (const auto node = own.find(name); node != own.end()) {
            found->second = node->second;
        } else {
            base.erase(found);
        }
    }
}

// What was printed where only this agent reads it, without the job's secrets. Of more than
// limits::kMaskedOutputBytes the end, from a line's beginning: a part of a secret is not
// recognized.
void copy_masked(const std::filesystem::path& from, const std::filesystem::path& to,
                 const std::shared_ptr<const SecretMask>& mask) {
    std::ifstream in{from, std::ios::binary};
    std::ofstream out{to, std::ios::binary};
    std::error_code ec;
    const std::uintmax_t bytes = std::filesystem::file_size(from, ec);
    if (!ec && bytes > limits::kMaskedOutputBytes) {
        in.seekg(static_cast<std::streamoff>(bytes - limits::kMaskedOutputBytes));
        in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
        out << "[lockstep: what is before the last " << (limits::kMaskedOutputBytes >> 20U)
            << " MiB is left out]\n";
    }
    MaskedStream masked{mask};
    std::string piece(1U << 16U, '\0');
    while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
        out << masked.feed({piece.data(), static_cast<std::size_t>(in.gcount())});
    }
    out << masked.end();
    out.flush();
    if (!out) {
        log::warn("the output of setup could not be kept", {{"path", to.string()}});
    }
}

std::string how_it_failed(const ProcessResult& result, const std::string& place) {
    const std::string where = place.empty() ? "" : ": " + place;
    if (result.timed_out) {
        return "setup did not end within " + std::to_string(limits::kSetupTimeout.count()) + " s" +
               where;
    }
    if (result.signal) {
        return "setup was ended by signal " + std::to_string(*result.signal) + where;
    }
    if (result.exit_status.value_or(0) != 0) {
        return "setup failed with exit code " + std::to_string(*result.exit_status) + where;
    }
    return "setup ended its shell (exit, exec) before the ranks could have its environment";
}

}  // namespace

JobEnvironment::JobEnvironment(TaskGroup& tasks, const NodeConfig& config,
                               std::filesystem::path folder, std::function<void()> ended)
    : tasks_(tasks),
      config_(config),
      folder_(std::move(folder)),
      ended_(std::move(ended)),
      runner_(tasks.io()) {}

std::string JobEnvironment::take_secrets(const JobSpec& spec, wire::Welcome& welcome) {
    const std::size_t given = std::min(welcome.secret_names.size(), welcome.secret_values.size());
    std::vector<std::string> missing;
    for (const std::string& name : spec.secrets) {
        const auto end = welcome.secret_names.begin() + static_cast<std::ptrdiff_t>(given);
        const auto at = std::find(welcome.secret_names.begin(), end, name);
        if (at == end) {
            missing.push_back(name);
        } else {
            secrets_[name] = std::move(
                welcome.secret_values[static_cast<std::size_t>(at - welcome.secret_names.begin())]);
        }
    }
    if (!secrets_.empty()) {
        std::vector<std::string> values;
        for (const auto& [name, value] : secrets_) {
            values.push_back(value);
        }
        mask_ = std::make_shared<const SecretMask>(values);
    }
    if (!missing.empty()) {
        problem_ = removed_secrets(missing);
    }
    return problem_;
}

void JobEnvironment::add_secrets(Variables& environment) const {
    for (const auto& [name, value] : secrets_) {
        environment[name] = value;
    }
}

std::string JobEnvironment::masked(std::string text) const {
    return mask_ ? mask_->masked(text) : std::move(text);
}

void JobEnvironment::mask_end(wire::Exited& exited) const {
    for (std::string* text :
         {&exited.log_tail, &exited.error_type, &exited.error, &exited.traceback}) {
        *text = masked(std::move(*text));
    }
}

bool JobEnvironment::begin(const JobSpec& spec) {
    spec_ = &spec;
    base_ = base_environment(spec, config_.inherited);
    if (spec.inherit_environment) {
        keep_folders(base_, config_.inherited);
    }
    return !spec.setup.empty() && spec.preflight.mode != PreflightMode::only && problem_.empty();
}

void JobEnvironment::run_setup() {
    tasks_.spawn("setup", run());
}

void JobEnvironment::kill() {
    killed_ = true;
    runner_.kill_all();
}

Task<void> JobEnvironment::run() {
    const std::filesystem::path folder = folder_ / "setup";
    std::array<char, 64> log{};
    std::snprintf(log.data(), log.size(), "setup-%05d.log", config_.node_rank);
    const std::filesystem::path output = config_.attempt_directory / log.data();
    Variables chosen = spec_->recorded_environment;
    keep_folders(chosen, config_.inherited);
    for (const auto& [name, value] : spec_->environment) {
        chosen[name] = value;
    }
    std::error_code ec;
    std::filesystem::create_directory(folder, ec);
    Status written = replace_file(folder / "text", spec_->setup + "\n", 0600);
    if (written) {
        written = replace_file(folder / "caller", exports_of(chosen), 0600);
    }
    if (!written) {
        problem_ = "setup cannot be prepared: " + written.error().message;
        ended_();
        co_return;
    }
    // With secrets the output is first where nobody else reads it: `set -x` would show them.
    const std::filesystem::path printed = mask_ ? folder / "output" : output;
    ProcessCommand command;
    command.argv = {"/bin/bash",     "--login",       "-c", kSetupBody, "setup",
                    folder.string(), printed.string()};
    for (const auto& [name, value] : secrets_) {
        command.environment.push_back("LOCKSTEP_SECRET_" + name + "=" + value);
        command.argv.insert(command.argv.end(), {"-u", name});  // of what is written down
    }
    for (const auto& [name, value] : base_) {
        command.environment.push_back(name + "=" + value);
    }
    command.directory = is_own_folder(spec_->working_directory)
                            ? spec_->working_directory
                            : config_.attempt_directory.string();
    command.timeout = limits::kSetupTimeout;
    command.output_bytes = SIZE_MAX;  // a limit of its own would be one of what setup writes
    log::info("setup begins", {{"output", output.string()}});
    const auto result = co_await runner_.run(std::move(command));
    if (mask_) {
        copy_masked(printed, output, mask_);
    }
    if (killed_) {
        co_return;
    }
    const auto environment = read_file(folder / "environment", limits::kSetupResultBytes);
    if (!result) {
        problem_ = "setup cannot be run: " + result.error().message;
    } else if (!environment || environment->empty()) {
        const auto place = read_file(folder / "failed", limits::kSetupBytes + 64);
        const auto words = read_plain_tail(output, limits::kSetupWords);
        problem_ = how_it_failed(*result, place ? printable(trim(*place)) : "") + "\n" +
                   printable(masked(words ? *words : result->err));
    } else {
        base_ = parse_environment(*environment);
        log::info(
            "setup has ended",
            {{"ms", std::chrono::duration_cast<std::chrono::milliseconds>(result->took).count()}});
    }
    std::filesystem::remove_all(folder, ec);
    ended_();
}

Variables JobEnvironment::of_task(const Variables& own) const {
    if (!spec_->inherit_environment && spec_->setup.empty()) {
        return own;
    }
    Variables out = base_;
    for (const auto& [name, value] : own) {
        const auto agents = config_.inherited.find(name);
        if (agents == config_.inherited.end() || agents->second != value) {
            out[name] = value;
        }
    }
    return out;
}

}  // namespace lockstep
