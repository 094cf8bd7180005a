#include "job/agent/ranks/process_look.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <filesystem>
#include <string_view>
#include <thread>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kSmall = 64U << 10U;
constexpr std::size_t kEnvironment = 2U << 20U;
constexpr std::size_t kMaps = 8U << 20U;
constexpr std::size_t kCommand = 1024;  // of a command line, for people
// Reading a disk looks like a hang for as long as a read takes.
constexpr auto kDiskRead = std::chrono::milliseconds{50};

struct Stat {
    std::string name;
    std::string state;
    pid_t parent = -1;
};

// "12 (any name) S 1 …": the name may hold anything, also parentheses.
Stat parse_stat(const std::string& text) {
    Stat out;
    const auto begin = text.find('(');
    const auto end = text.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end + 4 > text.size()) {
        return out;
    }
    out.name = printable(std::string_view{text}.substr(begin + 1, end - begin - 1));
    out.state = text.substr(end + 2, 1);
    const std::string_view rest = std::string_view{text}.substr(end + 4);
    out.parent = static_cast<pid_t>(to_int(rest.substr(0, rest.find(' '))).value_or(-1));
    return out;
}

Stat stat_of(const fs::path& folder) {
    const auto text = read_file(folder / "stat", kSmall);
    return text ? parse_stat(*text) : Stat{};
}

std::string small(const fs::path& path) {
    auto text = read_file(path, kSmall).value_or("");
    while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) {
        text.pop_back();
    }
    return text;
}

std::string link_of(const fs::path& path) {
    std::array<char, PATH_MAX> text{};
    const auto size = ::readlink(path.c_str(), text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string{};
}

std::vector<pid_t> numbers_in(const fs::path& folder, std::size_t most) {
    std::vector<pid_t> out;
    std::error_code ec;
    for (fs::directory_iterator at{folder, ec}, end; !ec && at != end; at.increment(ec)) {
        if (const auto number = to_int(at->path().filename().string())) {
            out.push_back(static_cast<pid_t>(*number));
        }
        if (out.size() == most) {
            break;
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

bool starts_with(std::string_view text, std::string_view with) {
    return text.substr(0, with.size()) == with;
}

std::map<std::string, std::string> environment_of(const fs::path& folder) {
    std::map<std::string, std::string> out;
    const std::string text = read_file(folder / "environ", kEnvironment).value_or("");
    for (const std::string& entry : split(text, '\0')) {
        if (const auto equals = entry.find('='); equals != std::string::npos && equals > 0) {
            out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
        }
    }
    return out;
}

std::string command_of(const fs::path& folder) {
    std::string text = small(folder / "cmdline").substr(0, kCommand);
    std::replace(text.begin(), text.end(), '\0', ' ');
    std::replace(text.begin(), text.end(), '\n', ' ');
    return printable(text);
}

// What needs its memory's lock.
void look_inside(const fs::path& folder, ProcessLook& out) {
    out.text += "  command: " + command_of(folder) + "\n";
    out.environment = environment_of(folder);
    out.folder = link_of(folder / "cwd");
    // Of a container: its files are reached through its root.
    if (const std::string root = link_of(folder / "root"); !root.empty() && root != "/") {
        out.root = (folder / "root").string();
    }
    const std::string program = fs::path{link_of(folder / "exe")}.filename().string();
    out.python = starts_with(program, "python") || starts_with(program, "pypy");
    const std::string maps = read_file(folder / "maps", kMaps).value_or("");
    out.python = out.python || maps.find("/libpython") != std::string::npos;
    out.nccl = maps.find("/libnccl") != std::string::npos ||
               maps.find("/libtorch_cuda") != std::string::npos;
    constexpr std::array kShells{"sh", "bash", "dash", "zsh", "ksh", "busybox", "tini", "env"};
    out.shell = std::find(kShells.begin(), kShells.end(), program) != kShells.end();
}

void add_status(const fs::path& folder, std::string& out) {
    constexpr std::array kWanted{"Threads:",
                                 "VmRSS:",
                                 "VmSwap:",
                                 "SigBlk:",
                                 "SigIgn:",
                                 "SigCgt:",
                                 "voluntary_ctxt_switches:",
                                 "nonvoluntary_ctxt_switches:"};
    for (const std::string& line : split(small(folder / "status"), '\n')) {
        for (const char* key : kWanted) {
            if (starts_with(line, key)) {
                std::string value{
                    trim(std::string_view{line}.substr(std::string_view{key}.size()))};
                out += "  " + std::string{key} + " " + value + "\n";
            }
        }
    }
}

void add_threads(const fs::path& folder, ProcessLook& out) {
    for (const pid_t thread : numbers_in(folder / "task", limits::kEvidenceThreads)) {
        const fs::path at = folder / "task" / std::to_string(thread);
        const Stat stat = stat_of(at);
        const std::string wchan = small(at / "wchan");
        const std::string call = small(at / "syscall");
        const std::string title = "thread " + std::to_string(thread) + " (" + stat.name + ")";
        out.text += "  " + title + " state " + stat.state +
                    (wchan.empty() || wchan == "0" ? "" : " in " + wchan) +
                    (call.empty() ? "" : " syscall " + call) + "\n";
        if (const std::string stack = small(at / "stack"); !stack.empty()) {
            out.kernel += title + " of process " + std::to_string(out.pid) + ", state " +
                          stat.state + "\n" + stack + "\n\n";
        }
    }
}

// Threads that wait uninterruptibly, each with how often it has run so far.
std::map<pid_t, std::string> waiting(const fs::path& folder) {
    std::map<pid_t, std::string> out;
    for (const pid_t thread : numbers_in(folder / "task", limits::kEvidenceThreads)) {
        const fs::path at = folder / "task" / std::to_string(thread);
        if (stat_of(at).state == "D") {
            out.emplace(thread, small(at / "schedstat"));
        }
    }
    return out;
}

// Whether one of them is in the same wait a moment later: a disk that answers and a fork are waits
// too, short ones.
bool is_stuck(const fs::path& folder) {
    const auto before = waiting(folder);
    if (before.empty()) {
        return false;
    }
    std::this_thread::sleep_for(kDiskRead);
    const auto after = waiting(folder);
    return std::any_of(before.begin(), before.end(), [&](const auto& one) {
        const auto found = after.find(one.first);
        return found != after.end() && found->second == one.second;
    });
}

ProcessLook look_at(pid_t pid) {
    const fs::path folder = "/proc/" + std::to_string(pid);
    ProcessLook out;
    out.pid = pid;
    const Stat stat = stat_of(folder);
    out.name = stat.name;
    out.state = stat.state;
    if (stat.state.empty()) {
        return out;
    }
    out.stopped = stat.state == "T" || stat.state == "t";
    out.stuck = is_stuck(folder);
    out.text = "process " + std::to_string(pid) + " (" + stat.name + ") state " + stat.state +
               " parent " + std::to_string(stat.parent) + "\n";
    if (out.stuck) {
        out.text += "  waits for the disk or a driver: its memory is not looked at\n";
    } else {
        look_inside(folder, out);
    }
    add_status(folder, out.text);
    add_threads(folder, out);
    return out;
}

}  // namespace

std::multimap<pid_t, pid_t> children_by_parent() {
    std::multimap<pid_t, pid_t> out;
    for (const pid_t pid : numbers_in("/proc", SIZE_MAX)) {
        out.emplace(stat_of("/proc/" + std::to_string(pid)).parent, pid);
    }
    return out;
}

std::vector<ProcessLook> look_at_tree(pid_t root, const std::multimap<pid_t, pid_t>& children) {
    std::vector<ProcessLook> out;
    std::vector<pid_t> next{root};
    for (std::size_t i = 0; i < next.size() && i < limits::kEvidenceProcesses; ++i) {
        ProcessLook one = look_at(next[i]);
        if (!one.state.empty()) {
            out.push_back(std::move(one));
        }
        const auto [from, to] = children.equal_range(next[i]);
        for (auto child = from; child != to; ++child) {
            next.push_back(child->second);
        }
    }
    return out;
}

}  // namespace lockstep
