#include "job/cli/run_guess.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/cli/run_launchers.hpp"
#include "job/model/spec/framework.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace lockstep::cli {
namespace {

constexpr std::size_t kScriptPart = 1U << 20U;

bool is_python(const std::string& program) {
    const std::string name = base_name(program);
    const auto digits =
        name.find_first_not_of("0123456789.", std::min<std::size_t>(6, name.size()));
    return name.starts_with("python") && digits == std::string::npos;
}

// What stands behind a Python: the script or -m's module.
struct Program {
    std::string script;    // "" = none
    std::string module;    // "" = none
    std::size_t next = 0;  // the first of its own arguments
};

Program program_behind(const std::vector<std::string>& command, std::size_t from) {
    Program out;
    for (std::size_t i = from; i < command.size(); ++i) {
        const std::string& word = command[i];
        if (word == "-m" && i + 1 < command.size()) {
            out.module = command[i + 1];
            out.next = i + 2;
            return out;
        }
        if (word == "-c") {
            out.next = command.size();
            return out;
        }
        if (word == "-W" || word == "-X") {
            ++i;
        } else if (word.empty() || word.front() != '-') {
            out.script = word;
            out.next = i + 1;
            return out;
        }
    }
    out.next = command.size();
    return out;
}

// The packages that a script imports, by the lines that do so.
std::set<std::string> imports_of(const std::string& text) {
    std::set<std::string> out;
    for (const std::string& line : split(text, '\n')) {
        const std::string_view code = trim(line);
        for (const std::string_view word : {"import ", "from "}) {
            if (!code.starts_with(word)) {
                continue;
            }
            std::string_view names = code.substr(word.size());
            names = names.substr(0, names.find(" import "));
            for (const std::string& name : split(names, ',')) {
                const std::string_view whole = trim(name);
                out.emplace(whole.substr(0, whole.find_first_of(". ")));
                if (whole.starts_with("torch.distributed")) {
                    out.emplace("torch.distributed");
                }
            }
        }
    }
    return out;
}

// By what decides first: Lightning's script imports torch, too.
std::string framework_of(const std::set<std::string>& imports, std::string& package) {
    std::int32_t place = std::numeric_limits<std::int32_t>::max();
    std::string out;
    for (std::size_t i = 0; i < kFrameworkCount; ++i) {
        const auto framework = static_cast<Framework>(i);
        for (const FrameworkImport& import : traits_of(framework).imports) {
            const std::string module{import.module};
            if (import.place < place && imports.contains(module)) {
                place = import.place;
                package = module;
                out = to_string(framework);
            }
        }
    }
    if (out.empty() && imports.contains("mpi4py")) {
        package = "mpi4py";  // srun starts its ranks, or mpirun
    }
    return out;
}

// What the script sets KERAS_BACKEND to.
struct NamedBackend {
    std::string name;         // "" = nothing, or several
    bool is_default = false;  // what is set already goes before it
};

// Of os.environ["KERAS_BACKEND"] = "torch", .setdefault("KERAS_BACKEND", "torch"),
// .update({"KERAS_BACKEND": "torch"}) and update(KERAS_BACKEND="torch"); it has to stand before the
// import of Keras, so it is no value that is computed.
NamedBackend backend_of(const std::string& text) {
    constexpr std::string_view kVariable = "KERAS_BACKEND";
    NamedBackend out;
    for (const std::string& line : split(text, '\n')) {
        const std::string_view code = trim(line);
        const std::size_t at = code.find(kVariable);
        if (at == std::string_view::npos || code.starts_with('#') ||
            code.find("environ") == std::string_view::npos) {
            continue;
        }
        std::string_view rest = code.substr(at + kVariable.size());
        rest.remove_prefix(std::min(rest.find_first_not_of("\"'] "), rest.size()));
        const bool sets =
            rest.starts_with(':') || (rest.starts_with('=') && !rest.starts_with("=="));
        const bool is_default = rest.starts_with(',') &&
                                code.substr(0, at).find("setdefault(") != std::string_view::npos;
        if (!sets && !is_default) {
            continue;
        }
        const std::string_view value = trim(rest.substr(1));
        const std::string_view inside = value.substr(std::min<std::size_t>(1, value.size()));
        const std::string name{inside.substr(0, inside.find_first_of("\"'"))};
        const bool known = name == "tensorflow" || name == "jax" || name == "torch";
        if (!known || (!out.name.empty() && out.name != name)) {
            return {};  // it depends
        }
        out = {name, is_default};
    }
    return out;
}

void look_into_script(Guess& out, const std::string& script, const RunOptions& options,
                      const Caller& caller) {
    const auto path = resolve_path(script, caller, caller.directory);
    const auto text = path ? read_plain_file(*path, kScriptPart) : std::string{};
    if (!text) {
        return;
    }
    std::string package;
    const std::string found = framework_of(imports_of(*text), package);
    if (!found.empty()) {
        out.framework = found;
        out.why = script + " imports " + package;
        out.ranks_per_node = found == "ray" ? 1 : out.ranks_per_node;
    }
    if ((options.framework.empty() ? found : options.framework) == "keras") {
        const NamedBackend backend = backend_of(*text);
        const bool is_set = !options.bare && caller.environment.contains("KERAS_BACKEND");
        if (!backend.name.empty() && !(backend.is_default && is_set)) {
            out.environment["KERAS_BACKEND"] = backend.name;
            out.why += " and takes " + backend.name + " for its backend";
        }
    }
    if (found == "tensorflow" && text->find("SlurmClusterResolver") != std::string::npos) {
        // It counts the GPUs that it sees as the node's, so a worker must not see its share alone.
        out.framework = "command";
        out.why = script + "'s SlurmClusterResolver finds the ranks and their GPUs by itself";
    }
}

}  // namespace

Result<Guess> guess_run(const RunOptions& options, const Caller& caller) {
    const std::vector<std::string>& command = options.command;
    Guess out;
    out.command = command;
    std::string program = base_name(command.front());
    out.name = job_name(command.front());
    const bool verb = command.size() > 1 && ((program == "accelerate" && command[1] == "launch") ||
                                             (program == "colossalai" && command[1] == "run"));
    if (verb) {
        program += " " + command[1];
    }
    const auto launcher = guess_launcher(out, program, verb ? 2 : 1, options);
    LOCKSTEP_TRY(launcher);
    if (*launcher) {
        return out;
    }
    if (!is_python(command.front())) {
        out.why = "no framework is known of " + program;
        return out;
    }
    const Program behind = program_behind(command, 1);
    if (!behind.module.empty()) {
        out.name = job_name(behind.module.substr(behind.module.rfind('.') + 1));
        const auto module = guess_launcher(out, behind.module, behind.next, options);
        LOCKSTEP_TRY(module);
        if (*module) {
            return out;
        }
        if (behind.module == "lockstep.ray") {
            // Its head listens at the master port, which torch's variables would have the agent
            // serve.
            out.why = "Ray makes a cluster of its own";
            out.ranks_per_node = 1;
            const std::size_t script = script_of(out.command, behind.next);
            out.name = script < out.command.size() ? job_name(out.command[script]) : "ray";
            return out;
        }
    }
    out.framework = "pytorch";
    out.why = "a Python program, which gets torchrun's variables";
    if (!behind.script.empty()) {
        out.name = job_name(behind.script);
        look_into_script(out, behind.script, options, caller);
    }
    return out;
}

}  // namespace lockstep::cli
