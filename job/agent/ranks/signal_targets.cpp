#include "job/agent/ranks/signal_targets.hpp"

#include "job/agent/ranks/process_look.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <signal.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kProcessStatusBytes = 64U << 10U;
constexpr std::string_view kCaughtField = "SigCgt:";
constexpr int kMaskBits = 64;  // Linux has signals 1 to 64

}  // namespace

int signal_number(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, int>, 5> kNumbers{{{"USR2", SIGUSR2},
                                                                        {"USR1", SIGUSR1},
                                                                        {"TERM", SIGTERM},
                                                                        {"INT", SIGINT},
                                                                        {"HUP", SIGHUP}}};
    for (const auto& [word, number] : kNumbers) {
        if (word == name) {
            return number;
        }
    }
    return 0;
}

bool catches_signal(pid_t pid, int number) {
    const auto status = read_file("/proc/" + std::to_string(pid) + "/status", kProcessStatusBytes);
    if (!status || number < 1 || number > kMaskBits) {
        return false;
    }
    for (const std::string& line : split(*status, '\n')) {
        if (line.starts_with(kCaughtField)) {
            const std::string mask{trim(std::string_view{line}.substr(kCaughtField.size()))};
            const std::uint64_t caught = std::strtoull(mask.c_str(), nullptr, 16);
            return ((caught >> static_cast<unsigned>(number - 1)) & 1U) != 0;
        }
    }
    return false;
}

std::vector<pid_t> processes_that_catch(pid_t root, int number) {
    if (catches_signal(root, number)) {
        return {root};  // nearly always: no look at all the machine's processes
    }
    std::vector<pid_t> out;
    const auto children = children_by_parent();
    std::deque<pid_t> open{root};
    for (std::size_t seen = 0; !open.empty() && seen < limits::kSignalProcesses; ++seen) {
        const pid_t pid = open.front();
        open.pop_front();
        if (catches_signal(pid, number)) {
            out.push_back(pid);
            continue;
        }
        const auto [first, last] = children.equal_range(pid);
        for (auto child = first; child != last; ++child) {
            open.push_back(child->second);
        }
    }
    return out;
}

}  // namespace lockstep
