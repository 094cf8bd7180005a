#include "scheduler-integration/local/agent_process.hpp"

#include "job/base/files.hpp"
#include "job/base/launch.hpp"
#include "job/base/limits.hpp"
#include "job/base/start_limits.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kVisibleDevices = "CUDA_VISIBLE_DEVICES=";

std::vector<std::string> agent_environment(const AgentCommand& command) {
    constexpr std::array<std::string_view, 3> kForeign{"LOCKSTEP_", "SLURM_", "PMI"};
    std::vector<std::string> out;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text{*entry};
        const auto foreign = [&](std::string_view prefix) { return text.starts_with(prefix); };
        const bool replaced = command.gpus_given && text.starts_with(kVisibleDevices);
        if (std::none_of(kForeign.begin(), kForeign.end(), foreign) && !replaced) {
            out.emplace_back(text);
        }
    }
    if (command.gpus_given) {
        out.push_back(std::string{kVisibleDevices} + command.gpus);
        // Numbers mean what the kernel numbers, not what is fastest first.
        if (std::getenv("CUDA_DEVICE_ORDER") == nullptr &&
            std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) {
            out.emplace_back("CUDA_DEVICE_ORDER=PCI_BUS_ID");
        }
    }
    return out;
}

std::string log_name(std::int32_t node_rank) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "agent-%05d.log", node_rank);
    return name.data();
}

int spawn(const AgentCommand& command, pid_t& pid) {
    LaunchPlan launching;
    launching.program = command.program;
    launching.argv = {command.program,  "run",
                      "--attempt-dir",  command.attempt_directory.string(),
                      "--node",         std::to_string(command.node_rank),
                      "--node-name",    command.node_name,
                      "--start-limits", to_text(start_limits())};
    launching.argv.insert(launching.argv.end(), command.extra.begin(), command.extra.end());
    launching.environment = agent_environment(command);
    launching.log = (command.attempt_directory / log_name(command.node_rank)).string();
    launching.group = ProcessGroup::session;
    return launch(launching, pid);
}

// Whether somebody holds the lock of an open claim file.
bool locked(int fd) {
    if (::flock(fd, LOCK_SH | LOCK_NB) == 0) {
        ::flock(fd, LOCK_UN);
        return false;
    }
    return errno == EWOULDBLOCK;
}

}  // namespace

Result<AgentProcess> start_agent(const AgentCommand& command) {
    AgentProcess out;
    if (const int failed = spawn(command, out.pid); failed != 0) {
        return fail(errno_error("start " + command.program, failed));
    }
    out.pidfd = open_pidfd(out.pid);
    if (!out.pidfd) {
        const int number = errno;
        ::kill(out.pid, SIGKILL);
        ::waitpid(out.pid, nullptr, 0);
        return fail(errno_error("pidfd_open", number));
    }
    return out;
}

ClaimState read_claim(const std::filesystem::path& attempt_directory, std::int32_t node_rank) {
    ClaimState state;
    const auto path = attempt_directory / wire::claim_file_name(node_rank);
    const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
    if (!fd) {
        return state;
    }
    if (const auto text = read_file(path, limits::kAttemptFileBytes)) {
        if (auto claim = wire::decode_claim_file(*text)) {
            state.claim = std::move(*claim);
        }
    }
    if (locked(fd.get())) {
        state.kind = ClaimState::Kind::alive;
        return state;
    }
    state.kind = ClaimState::Kind::ended;
    struct stat info{};
    state.has_result =
        ::stat((attempt_directory / wire::result_file_name(node_rank)).c_str(), &info) == 0;
    return state;
}

std::optional<AgentProcess> adopt_agent(const std::filesystem::path& attempt_directory,
                                        std::int32_t node_rank) {
    const ClaimState before = read_claim(attempt_directory, node_rank);
    if (before.kind != ClaimState::Kind::alive || before.claim.pid <= 0) {
        return std::nullopt;
    }
    AgentProcess out{static_cast<pid_t>(before.claim.pid), UniqueFd{}};
    out.pidfd = open_pidfd(out.pid);
    if (!out.pidfd || read_claim(attempt_directory, node_rank).kind != ClaimState::Kind::alive) {
        return std::nullopt;
    }
    return out;
}

void signal_agent(int pidfd, int number) {
    ::syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0);
}

}  // namespace lockstep
