#include "job/agent/ranks/spawn.hpp"

#include "job/base/launch.hpp"
#include "job/base/log.hpp"
#include "job/base/start_limits.hpp"
#include "job/base/text.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

// What the dynamic linker obeys is the rank's, not the shim's, which would be started with another
// program's libraries (LD_LIBRARY_PATH of a conda environment, LD_PRELOAD): on the way to it these
// variables have another name.
constexpr std::string_view kHeldBack = "LOCKSTEP_HELD_BACK_";

bool is_linkers(std::string_view name) {
    return name.starts_with("LD_") || name == "GLIBC_TUNABLES";
}

// The environment as it was before.
std::vector<char*> given_back(char** environment) {
    std::vector<char*> out;
    for (char** entry = environment; *entry != nullptr; ++entry) {
        const bool held = std::string_view{*entry}.starts_with(kHeldBack);
        out.push_back(*entry + (held ? kHeldBack.size() : 0));
    }
    out.push_back(nullptr);
    return out;
}

// Whether there is a program of this path is not known if `problem` is set: its file server does
// not answer, say.
bool is_file(const std::string& path, std::optional<Error>& problem) {
    struct stat info{};
    if (::stat(path.c_str(), &info) == 0) {
        return S_ISREG(info.st_mode);
    }
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != ELOOP &&
        errno != ENAMETOOLONG) {
        problem = errno_error("look for " + printable(path), errno);
    }
    return false;
}

std::string in_directory(const std::string& path, const std::string& directory) {
    return path.empty() || path.front() != '/' ? directory + "/" + path : path;
}

}  // namespace

Result<std::string> find_program(const std::string& name, std::string_view path,
                                 const std::string& directory) {
    std::vector<std::string> candidates;
    if (name.find('/') != std::string::npos) {
        candidates.push_back(in_directory(name, directory));
    } else if (!name.empty()) {
        for (const auto& folder : split(path, ':')) {
            candidates.push_back(in_directory(folder, directory) + "/" + name);
        }
    }
    std::string refused;
    std::optional<Error> problem;
    for (const auto& candidate : candidates) {
        if (!is_file(candidate, problem)) {
            continue;
        }
        if (::access(candidate.c_str(), X_OK) == 0) {
            return candidate;
        }
        refused = candidate;
    }
    if (!refused.empty()) {
        return fail(Errc::denied, "command is not executable: " + printable(refused));
    }
    if (problem && candidates.size() == 1) {
        return fail(*problem);
    }
    // One folder of PATH that does not answer is on every node, and no reason to try another one.
    return fail(Errc::not_found, "command not found: " + printable(name) +
                                     (problem ? " (" + problem->message + ")" : ""));
}

Result<SpawnedProcess> spawn_rank(const SpawnRequest& request) {
    LaunchPlan launching;
    launching.program = request.agent_program;
    launching.argv = {request.agent_program,      "exec",
                      std::to_string(::getpid()), to_text(start_limits()),
                      request.directory,          request.program};
    launching.argv.insert(launching.argv.end(), request.argv.begin(), request.argv.end());
    auto& environment = launching.environment.emplace();
    for (const auto& [name, value] : request.environment) {
        environment.push_back((is_linkers(name) ? std::string{kHeldBack} : "") + name + "=" +
                              value);
    }
    launching.output = request.output;
    launching.error = request.output;
    launching.handed = request.handed;
    launching.group = ProcessGroup::own;
    pid_t pid = -1;
    // The child has what this thread has at that moment.
    const BoundThread bound{request.binding};
    if (!bound.problem().empty()) {
        log::warn("a rank could not be bound", {{"what", bound.problem()}});
    }
    if (const int failed = launch(launching, pid); failed != 0) {
        Error error = errno_error("start " + request.program, failed);
        // What is started is the agent's own program, with the job's arguments and environment:
        // that these are too long is the same everywhere, everything else is this machine's.
        error.code = failed == E2BIG ? Errc::invalid : Errc::unavailable;
        return fail(std::move(error));
    }
    SpawnedProcess out{pid, open_pidfd(pid)};
    if (!out.pidfd) {
        const int number = errno;
        ::kill(-pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        return fail(Errc::unavailable, errno_error("pidfd_open", number).message);
    }
    return out;
}

namespace {

// posix_spawn(3) leaves glibc's own two signals ignored, which glibc itself does not let one
// change.
void restore_signals_of_glibc() {
    struct {
        void* handler = nullptr;  // SIG_DFL
        unsigned long flags = 0;
        void* restorer = nullptr;
        unsigned long mask = 0;
    } action;
    for (int number = __SIGRTMIN; number < SIGRTMIN; ++number) {
        ::syscall(SYS_rt_sigaction, number, &action, nullptr, sizeof action.mask);
    }
}

// What execve(2) says of a script, the file being there: that its interpreter is not.
std::string interpreter_missing(const char* program) {
    std::FILE* const file = std::fopen(program, "re");
    if (file == nullptr) {
        return "";
    }
    std::array<char, 256> head{};  // the kernel reads no more of it
    const std::size_t size = std::fread(head.data(), 1, head.size(), file);
    std::fclose(file);
    std::string_view line{head.data(), size};
    line = line.substr(0, line.find('\n'));
    if (!line.starts_with("#!")) {
        return "";
    }
    const bool windows = line.ends_with('\r');
    line.remove_prefix(2);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    line = line.substr(0, line.find_first_of(" \t\r"));
    return ": its first line names " + printable(line) +
           (windows ? ", and ends in a carriage return as on Windows: sed -i 's/\\r$//' makes it "
                      "a script of Linux"
                    : ", which is not there");
}

}  // namespace

int run_exec_shim(int argc, char** argv) {
    constexpr int kFailed = 126;
    if (argc < 5) {
        return kFailed;
    }
    const char* const directory = argv[2];
    char* const program = argv[3];
    // The rank's leader dies with the agent's (only) thread. The agent may have died before the
    // prctl: then the parent is another process by now.
    const auto parent = to_int(argv[0]);
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || !parent || ::getppid() != *parent) {
        return kFailed;
    }
    give_back_limits(start_limits_from(argv[1]));
    restore_signals_of_glibc();
    if (::chdir(directory) != 0) {
        std::fprintf(stderr, "lockstep: cannot enter %s: %s\n", directory, std::strerror(errno));
        return kFailed;
    }
    ::setenv("PWD", directory, 1);
    if (::getenv("LOCKSTEP_STANDBY") != nullptr) {
        // This process is to wait, and none that it starts (_lockstep_standby.py).
        ::setenv("LOCKSTEP_STANDBY_PID", std::to_string(::getpid()).c_str(), 1);
    }
    const std::vector<char*> environment = given_back(environ);
    ::execve(program, argv + 4, environment.data());
    const int number = errno;
    if (number == ENOEXEC) {
        // A script without #!: what execvp(3) and every shell do.
        std::vector<char*> shell{const_cast<char*>("/bin/sh"), program};
        for (int i = 5; i < argc; ++i) {
            shell.push_back(argv[i]);
        }
        shell.push_back(nullptr);
        ::execve("/bin/sh", shell.data(), environment.data());
    }
    const std::string why = number == ENOENT ? interpreter_missing(program) : "";
    std::fprintf(stderr, "lockstep: cannot start %s: %s%s\n", program, std::strerror(number),
                 why.c_str());
    return kFailed;
}

}  // namespace lockstep
