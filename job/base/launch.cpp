#include "job/base/launch.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

class SpawnSetup {
  public:
    explicit SpawnSetup(const LaunchPlan& what) {
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (what.log.empty()) {
            ::posix_spawn_file_actions_adddup2(&actions, what.output, STDOUT_FILENO);
            ::posix_spawn_file_actions_adddup2(&actions, what.error, STDERR_FILENO);
        } else {
            const int link = what.log_may_be_link ? 0 : O_NOFOLLOW;
            ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, what.log.c_str(),
                                               O_WRONLY | O_CREAT | O_APPEND | link, 0600);
            ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
        }
        int next = STDERR_FILENO + 1;
        for (const int fd : what.handed) {
            ::posix_spawn_file_actions_adddup2(&actions, fd, next++);
        }
        ::posix_spawn_file_actions_addclosefrom_np(&actions, next);
        if (!what.directory.empty()) {
            ::posix_spawn_file_actions_addchdir_np(&actions, what.directory.c_str());
        }
        ::posix_spawnattr_init(&attributes);
        sigset_t none;
        sigset_t all;
        ::sigemptyset(&none);
        ::sigfillset(&all);
        ::posix_spawnattr_setsigmask(&attributes, &none);
        ::posix_spawnattr_setsigdefault(&attributes, &all);
        ::posix_spawnattr_setpgroup(&attributes, 0);
        const int group = what.group == ProcessGroup::own       ? POSIX_SPAWN_SETPGROUP
                          : what.group == ProcessGroup::session ? POSIX_SPAWN_SETSID
                                                                : 0;
        ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK |
                                                                   POSIX_SPAWN_SETSIGDEF | group));
    }
    SpawnSetup(const SpawnSetup&) = delete;
    SpawnSetup& operator=(const SpawnSetup&) = delete;
    ~SpawnSetup() {
        ::posix_spawn_file_actions_destroy(&actions);
        ::posix_spawnattr_destroy(&attributes);
    }

    posix_spawn_file_actions_t actions{};
    posix_spawnattr_t attributes{};
};

}  // namespace

int launch(const LaunchPlan& what, pid_t& pid) {
    const SpawnSetup setup{what};
    std::vector<std::string> argv = what.argv;
    std::vector<std::string> environment = what.environment.value_or(std::vector<std::string>{});
    const auto arguments = exec_pointers(argv);
    const auto variables = exec_pointers(environment);
    return ::posix_spawnp(&pid, what.program.c_str(), &setup.actions, &setup.attributes,
                          arguments.data(), what.environment ? variables.data() : environ);
}

// glibc 2.36's <sys/pidfd.h> lacks extern "C".
UniqueFd open_pidfd(pid_t pid) {
    return UniqueFd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
}

std::vector<char*> exec_pointers(std::vector<std::string>& items) {
    std::vector<char*> out;
    out.reserve(items.size() + 1);
    for (std::string& item : items) {
        out.push_back(item.data());
    }
    out.push_back(nullptr);
    return out;
}

}  // namespace lockstep
