#include "job/agent/keeper.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr int kSignalExit = 128;  // as shells say it
constexpr auto kEndLook = std::chrono::milliseconds{10};
constexpr std::size_t kProcessStatBytes = 4096;

// Orphans below the keeper become its children (PR_SET_CHILD_SUBREAPER).
std::vector<pid_t> own_children() {
    std::vector<pid_t> out;
    DIR* const folder = ::opendir("/proc");
    if (folder == nullptr) {
        return out;
    }
    while (const dirent* entry = ::readdir(folder)) {
        const auto pid = to_int(entry->d_name);
        if (pid && *pid > 0 && parent_process(static_cast<pid_t>(*pid)) == ::getpid()) {
            out.push_back(static_cast<pid_t>(*pid));
        }
    }
    ::closedir(folder);
    return out;
}

void reap_the_dead() {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
}

// Every process below this one. Whoever is killed leaves its own children to this one, so it is
// looked for them until there are none. False: some do not go.
bool end_all_below() {
    const auto until = std::chrono::steady_clock::now() + limits::kKillPatience;
    for (;;) {
        reap_the_dead();
        const std::vector<pid_t> children = own_children();
        if (children.empty()) {
            return true;
        }
        if (std::chrono::steady_clock::now() >= until) {
            return false;
        }
        for (const pid_t pid : children) {
            ::kill(pid, SIGKILL);
        }
        const timespec pause{0, std::chrono::nanoseconds{kEndLook}.count()};
        ::nanosleep(&pause, nullptr);
    }
}

// Until the agent has ended: its status. `told`: somebody wanted it to.
int wait_for(pid_t agent, const sigset_t& signals, bool& told) {
    for (;;) {
        int status = 0;
        for (pid_t ended = ::waitpid(-1, &status, WNOHANG); ended > 0;
             ended = ::waitpid(-1, &status, WNOHANG)) {
            if (ended == agent) {
                return status;
            }
        }
        siginfo_t info{};
        const int number = ::sigwaitinfo(&signals, &info);
        if (number == SIGTERM || number == SIGINT) {
            told = true;
            ::kill(agent, number);
        }
    }
}

}  // namespace

pid_t parent_process(pid_t pid) {
    const auto text = read_file("/proc/" + std::to_string(pid) + "/stat", kProcessStatBytes);
    const auto name_end = text ? text->rfind(") ") : std::string::npos;
    if (name_end == std::string::npos) {
        return 0;
    }
    const auto words = split(text->substr(name_end + 2), ' ');  // state, parent, …
    return static_cast<pid_t>(words.size() > 1 ? to_int(words[1]).value_or(0) : 0);
}

int keep_agent(int restarts, const std::function<int(bool again)>& agent) {
    const pid_t self = ::getpid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t signals;
    sigset_t before;
    ::sigemptyset(&signals);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT}) {
        ::sigaddset(&signals, number);
    }
    // Waited for, so that none is missed between two looks. SIGURG, which Slurm sends to all, is
    // the agent's own affair, and nobody else's by default.
    ::sigprocmask(SIG_BLOCK, &signals, &before);
    for (int started = 0;; ++started) {
        const pid_t child = ::fork();
        if (child < 0) {
            log::error("no process for the agent", {{"why", errno_error("fork", errno).message}});
            return EXIT_FAILURE;
        }
        if (child == 0) {
            ::sigprocmask(SIG_SETMASK, &before, nullptr);
            if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != self) {
                std::_Exit(EXIT_FAILURE);
            }
            return agent(started > 0);
        }
        bool told = false;
        const int status = wait_for(child, signals, told);
        if (!WIFSIGNALED(status)) {
            return WEXITSTATUS(status);
        }
        log::error("a signal has ended the agent", {{"signal", WTERMSIG(status)}});
        if (!end_all_below()) {
            log::error("what it has left does not end; it is not started again");
            return kSignalExit + WTERMSIG(status);
        }
        if (told || started >= restarts) {
            return kSignalExit + WTERMSIG(status);
        }
        log::warn("the agent is started again");
    }
}

}  // namespace lockstep
