#include "job/agent/diagnostics/stack_tools.hpp"

#include "job/agent/ranks/rank_state.hpp"
#include "job/agent/ranks/spawn.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/evidence.hpp"

#include <signal.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t kTextBytes = limits::kEvidenceFileBytes / limits::kEvidenceStacks - 1024;

// In the process's own PATH first.
std::string find_tool(const std::string& name, const std::string& own, const std::string& path) {
    if (!own.empty()) {
        if (const auto found = find_program(name, own, "/")) {
            return *found;
        }
    }
    return find_program(name, path, "/").value_or("");
}

const StackTools& tools_of(const ProcessLook& process, const StackToolMap& tools) {
    static const StackTools none;
    auto found = tools.find(tool_path(process));
    found = found == tools.end() ? tools.find("") : found;
    return found == tools.end() ? none : found->second;
}

void add_gap(Stacks& out, std::string_view what, std::string why) {
    const bool told = std::any_of(out.missing.begin(), out.missing.end(), [&](const auto& gap) {
        return gap.what == what && gap.why == why;
    });
    if (!told && out.missing.size() < limits::kEvidenceGaps) {
        out.missing.push_back({std::string{what}, std::move(why)});
    }
}

std::string title_of(const ProcessLook& process) {
    return "==== process " + std::to_string(process.pid) + " (" + process.name + ")\n";
}

std::string last_line(const std::string& text) {
    const std::string_view all = trim(text);
    const auto at = all.rfind('\n');
    const std::string_view line = at == std::string_view::npos ? all : all.substr(at + 1);
    return printable(line.substr(0, limits::kTextBytes));
}

// Why a tool had nothing to say.
std::string reason(const std::string& tool, const Result<ProcessResult>& ran) {
    const std::string name = tool.substr(tool.rfind('/') + 1);
    if (!ran) {
        return name + ": " + ran.error().message;
    }
    if (ran->timed_out) {
        return name + " did not end within " + std::to_string(limits::kEvidenceTool.count()) + " s";
    }
    const std::string said = last_line(ran->err);
    return name + (said.empty() ? " found no stack" : ": " + said);
}

Task<Result<ProcessResult>> run_tool(ProcessRunner& runner, std::vector<std::string> argv,
                                     std::string path, pid_t pid) {
    ProcessCommand command;
    command.argv = std::move(argv);
    // No HOME and no DEBUGINFOD_URLS: nothing is read from elsewhere, nothing is fetched.
    command.environment = {"PATH=" + path, "LC_ALL=C", "TERM=dumb"};
    command.timeout = limits::kEvidenceTool;
    command.output_bytes = kTextBytes;
    auto ran = co_await runner.run(command);
    if (ran && (ran->timed_out || ran->signal) && look_at_rank(0, pid).state == "T") {
        ::kill(pid, SIGCONT);
    }
    co_return ran;
}

Task<bool> ask_py_spy(ProcessRunner& runner, const ProcessLook& process, const StackTools& tools,
                      const std::string& path, Stacks& out) {
    const std::string tool = tools.py_spy;
    if (tool.empty()) {
        add_gap(out, "python", "py-spy is not installed");
        co_return false;
    }
    std::vector<std::string> argv{tool, "dump", "--nonblocking", "--pid",
                                  std::to_string(process.pid)};
    const auto ran = co_await run_tool(runner, std::move(argv), path, process.pid);
    std::string frame = ran ? top_python_frame(ran->out) : "";
    if (frame.empty()) {
        add_gap(out, "python", reason(tool, ran));
        co_return false;
    }
    out.python += title_of(process) + ran->out + "\n";
    if (out.frame.empty()) {
        out.frame = std::move(frame);
    }
    co_return true;
}

Task<void> ask_debugger(ProcessRunner& runner, const ProcessLook& process, const StackTools& tools,
                        const std::string& path, Stacks& out) {
    if (process.stopped) {
        add_gap(out, "native", "the process is stopped: a debugger would wake it");
        co_return;
    }
    const std::string pid = std::to_string(process.pid);
    const std::string frames = std::to_string(limits::kEvidenceFrames);
    std::string tool = tools.gdb;
    std::vector<std::string> argv{tool,
                                  "-nx",
                                  "-batch",
                                  "-p",
                                  pid,
                                  "-ex",
                                  "set print frame-arguments none",
                                  "-ex",
                                  "thread apply all bt " + frames};
    if (tool.empty()) {
        tool = tools.eu_stack;
        argv = {tool, "-n", frames, "-p", pid};
    }
    if (tool.empty()) {
        add_gap(out, "native", "neither gdb nor eu-stack is installed");
        co_return;
    }
    const auto ran = co_await run_tool(runner, std::move(argv), path, process.pid);
    if (!ran || ran->out.find("#0 ") == std::string::npos) {
        add_gap(out, "native", reason(tool, ran));
        co_return;
    }
    out.native += title_of(process) + ran->out + "\n";
    if (out.frame.empty()) {
        out.frame = top_native_frame(ran->out);
    }
}

}  // namespace

std::string tool_path(const ProcessLook& process) {
    const auto own = process.environment.find("PATH");
    // A container's programs are not those of this side.
    return own == process.environment.end() || !process.root.empty() ? "" : own->second;
}

StackToolMap find_stack_tools(const std::set<std::string>& own, const std::string& path) {
    StackToolMap out;
    for (const std::string& one : own) {
        out[one] = {find_tool("py-spy", one, path), find_tool("gdb", one, path),
                    find_tool("eu-stack", one, path)};
    }
    return out;
}

Task<Stacks> take_stacks(ProcessRunner& runner, const std::vector<ProcessLook>& tree,
                         const StackToolMap& tools, std::string path, const bool& over,
                         bool have_python) {
    Stacks out;
    std::vector<const ProcessLook*> wanted;
    const ProcessLook* last = nullptr;
    for (const ProcessLook& process : tree) {
        if (process.state == "Z" || process.state == "X") {
            continue;  // it has ended: the shell that is yet to notice is looked at instead
        }
        last = &process;
        if (!process.shell && wanted.size() < limits::kEvidenceStacks) {
            wanted.push_back(&process);
        }
    }
    if (wanted.empty() && last != nullptr) {
        wanted.push_back(last);
    }
    for (const ProcessLook* process : wanted) {
        if (over) {
            break;
        }
        if (process->stuck) {
            add_gap(out, process->python ? "python" : "native",
                    "the process waits for the disk or a driver: no debugger gets through to it");
            continue;
        }
        const StackTools& own = tools_of(*process, tools);
        bool seen = false;
        if (process->python && !have_python) {
            seen = co_await ask_py_spy(runner, *process, own, path, out);
        }
        // A py-spy that was killed because the ranks are to end has found nothing either.
        if (!seen && !over) {
            co_await ask_debugger(runner, *process, own, path, out);
        }
    }
    co_return out;
}

}  // namespace lockstep
