// A real lockstep-agent process in a temporary attempt directory, for tests.
#pragma once

#include "tests/support/temporary_folder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

// Runs `lockstep-agent run` with its stderr in <folder>/agent.log. Its home is the folder: what a
// setup's login shell reads there must not depend on who runs the tests.
class AgentProcess {
  public:
    explicit AgentProcess(const std::filesystem::path& folder, int node = 0,
                          const std::vector<std::string>& more = {})
        : folder_(folder) {
        std::vector<std::string> words{LOCKSTEP_AGENT,  "run",    "--attempt-dir",
                                       folder.string(), "--node", std::to_string(node),
                                       "--log-level",   "debug"};
        words.insert(words.end(), more.begin(), more.end());
        std::vector<char*> argv;
        for (auto& word : words) {
            argv.push_back(word.data());
        }
        argv.push_back(nullptr);
        const std::string log = (folder / "agent.log").string();
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                           0600);
        ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
        std::vector<std::string> variables{"HOME=" + folder.string()};
        for (char** one = environ; *one != nullptr; ++one) {
            if (std::string_view{*one}.substr(0, 5) != "HOME=") {
                variables.emplace_back(*one);
            }
        }
        std::vector<char*> environment;
        for (auto& variable : variables) {
            environment.push_back(variable.data());
        }
        environment.push_back(nullptr);
        const int failed = ::posix_spawn(&pid_, LOCKSTEP_AGENT, &actions, nullptr, argv.data(),
                                         environment.data());
        ::posix_spawn_file_actions_destroy(&actions);
        if (failed != 0) {
            throw std::runtime_error("cannot start lockstep-agent");
        }
    }
    AgentProcess(const AgentProcess&) = delete;
    AgentProcess& operator=(const AgentProcess&) = delete;
    ~AgentProcess() {
        if (!status_) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
    }

    pid_t pid() const { return pid_; }
    void signal(int number) const { ::kill(pid_, number); }
    // Whether it has ended; never blocks.
    bool ended() {
        int status = 0;
        if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
            status_ = status;
        }
        return status_.has_value();
    }
    // Exit code, or -signal. Blocks until it has ended.
    int code() {
        int status = 0;
        if (!status_ && ::waitpid(pid_, &status, 0) == pid_) {
            status_ = status;
        }
        return WIFEXITED(*status_) ? WEXITSTATUS(*status_) : -WTERMSIG(*status_);
    }
    std::string log() const { return text_of(folder_ / "agent.log"); }
    // Most memory it ever had, MiB.
    long peak_memory_mib() const {
        const std::string text = text_of("/proc/" + std::to_string(pid_) + "/status");
        const auto at = text.find("VmHWM:");
        return at == std::string::npos ? -1 : std::stol(text.substr(at + 6)) / 1024;
    }

  private:
    std::filesystem::path folder_;
    pid_t pid_ = -1;
    std::optional<int> status_;
};

}  // namespace lockstep::test
