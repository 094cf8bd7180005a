#include "job/agent/diagnostics/python_stacks.hpp"

#include "job/agent/diagnostics/rank_hooks.hpp"
#include "job/agent/ranks/signal_targets.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/python_stack.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

using StackClock = std::chrono::steady_clock;
// As in job/rank/python/hooks/_lockstep_hooks.py: SIGRTMIN+11 of glibc.
constexpr int kStackSignal = 45;
constexpr std::size_t kStackBytes = 256U << 10U;
constexpr auto kStackPoll = std::chrono::milliseconds{2};
// Looks in a row at which nothing more had been written: that is all. Counted, not timed: a machine
// that stands still for a moment is one look.
constexpr int kQuietLooks = 12;
// As many where the stack does not end with a script's first call: its process may have been put
// aside in the middle of its answer, on a node that does much else.
constexpr int kQuietLooksInTheMiddle = 500;

// One process that may be asked.
struct AskedForStack {
    std::size_t tree = 0;
    const ProcessLook* process = nullptr;
    UniqueFd file;
    std::pair<dev_t, ino_t> identity;
    off_t from = 0;  // where its answer begins
    off_t size = 0;
    int quiet = 0;  // looks since it grew
    enum class State : std::uint8_t { waits, asked, done } state = State::waits;
};

std::optional<AskedForStack> ask_of(std::size_t tree, const ProcessLook& process) {
    AskedForStack one;
    one.tree = tree;
    one.process = &process;
    one.file = hooks_file(process.pid).file;
    struct stat info{};
    if (!one.file || !catches_signal(process.pid, kStackSignal) ||
        ::fstat(one.file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return std::nullopt;
    }
    one.identity = {info.st_dev, info.st_ino};
    return one;
}

off_t size_of(const AskedForStack& one) {
    struct stat info{};
    return ::fstat(one.file.get(), &info) == 0 ? info.st_size : 0;
}

std::string answer_of(const AskedForStack& one) {
    const auto size =
        std::min<std::size_t>(static_cast<std::size_t>(one.size - one.from), kStackBytes);
    std::string out(size, '\0');
    const auto got = ::pread(one.file.get(), out.data(), size, one.from);
    out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return out;
}

// Whether a script begins with the last call. What exec() and imports run has a first call, too.
bool ends_with_first_call(std::string_view text) {
    const std::string_view line = text.substr(text.substr(0, text.size() - 1).rfind('\n') + 1);
    return line.ends_with(" in _run_module_as_main\n") ||  // of python -m
           (line.ends_with(" in <module>\n") && !line.starts_with("  File \"<"));
}

// faulthandler writes word by word; the main thread's stack comes last.
bool is_whole(const AskedForStack& one) {
    const std::string text = answer_of(one);
    return text.ends_with('\n') && !main_python_stack(text).empty() &&
           (one.quiet >= kQuietLooksInTheMiddle || ends_with_first_call(text));
}

// Sends the signal to whoever's file nobody else is writing into; true while somebody is waited
// for.
bool go_on(std::vector<AskedForStack>& all) {
    std::map<std::pair<dev_t, ino_t>, bool> busy;
    for (AskedForStack& one : all) {
        if (one.state != AskedForStack::State::asked) {
            continue;
        }
        const off_t size = size_of(one);
        if (size != one.size) {
            one.size = size;
            one.quiet = 0;
        } else if (size > one.from && ++one.quiet >= kQuietLooks && is_whole(one)) {
            one.state = AskedForStack::State::done;
            continue;
        }
        busy[one.identity] = true;
    }
    bool waits = !busy.empty();
    for (AskedForStack& one : all) {
        if (one.state != AskedForStack::State::waits || busy[one.identity]) {
            continue;
        }
        busy[one.identity] = true;
        one.from = size_of(one);
        one.size = one.from;
        const bool sent = ::kill(one.process->pid, kStackSignal) == 0;
        one.state = sent ? AskedForStack::State::asked : AskedForStack::State::done;
        waits = waits || sent;
    }
    return waits;
}

}  // namespace

std::vector<PythonStacks> ask_python_stacks(const std::vector<std::vector<ProcessLook>>& trees,
                                            std::chrono::milliseconds patience) {
    const auto until = StackClock::now() + patience;
    std::vector<PythonStacks> out(trees.size());
    std::vector<AskedForStack> all;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        for (const ProcessLook& process : trees[i]) {
            const bool dead = process.state == "Z" || process.state == "X";
            if (!process.python || dead) {
                continue;
            }
            if (process.stopped) {
                out[i].missing = "the process is stopped";
            } else if (auto one = ask_of(i, process)) {
                all.push_back(std::move(*one));
            } else if (out[i].missing.empty()) {
                out[i].missing = "the hooks are not in this Python";
            }
        }
    }
    while (go_on(all) && StackClock::now() < until) {
        std::this_thread::sleep_for(kStackPoll);
    }
    for (const AskedForStack& one : all) {
        PythonStacks& found = out[one.tree];
        const std::string text = one.state == AskedForStack::State::waits ? "" : answer_of(one);
        const std::string stack = main_python_stack(text);
        if (stack.empty()) {
            found.missing =
                found.missing.empty() ? "the process did not answer in time" : found.missing;
            continue;
        }
        found.stack = found.stack.empty() ? stack : found.stack;
        found.text += "==== process " + std::to_string(one.process->pid) + " (" +
                      one.process->name + ")\n" + text + "\n";
    }
    for (PythonStacks& one : out) {
        one.missing = one.text.empty() ? one.missing : "";
    }
    return out;
}

}  // namespace lockstep
