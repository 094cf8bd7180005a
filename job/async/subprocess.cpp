#include "job/async/subprocess.hpp"

#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>

namespace lockstep {
namespace {

// A file in memory: a program cannot block on it, and RLIMIT_FSIZE bounds it.
UniqueFd memory_file(const char* name) {
    return UniqueFd{::memfd_create(name, MFD_CLOEXEC)};
}

bool write_all(int fd, const std::string& text) {
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
        if (wrote <= 0) {
            return false;
        }
        done += static_cast<std::size_t>(wrote);
    }
    return ::lseek(fd, 0, SEEK_SET) == 0;
}

std::string read_all(int fd, std::size_t most) {
    std::string out;
    const off_t size = ::lseek(fd, 0, SEEK_END);
    out.resize(std::min(most, static_cast<std::size_t>(std::max<off_t>(size, 0))));
    std::size_t done = 0;
    while (done < out.size()) {
        const ssize_t got =
            ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(done));
        if (got <= 0) {
            break;
        }
        done += static_cast<std::size_t>(got);
    }
    out.resize(done);
    return out;
}

std::vector<char*> pointers(std::vector<std::string>& items) {
    std::vector<char*> out;
    out.reserve(items.size() + 1);
    for (auto& item : items) {
        out.push_back(item.data());
    }
    out.push_back(nullptr);
    return out;
}

// What the child needs, made before the fork: after it only async-signal-safe calls are allowed.
struct ChildSetup {
    int input;
    int output;
    int error;
    int status;  // gets errno if the program cannot be started
    pid_t parent;
    std::size_t output_bytes;
    const char* directory;
    char* const* argv;
    char* const* environment;
};

[[noreturn]] void become(const ChildSetup& setup) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != setup.parent) {
        ::_exit(127);  // the parent died before it could be told of
    }
    sigset_t none;
    ::sigemptyset(&none);
    for (int number = 1; number < NSIG; ++number) {
        ::signal(number, SIG_DFL);
    }
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const rlimit limit{setup.output_bytes, setup.output_bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int failed = 0;
    if (::dup2(setup.input, STDIN_FILENO) < 0 || ::dup2(setup.output, STDOUT_FILENO) < 0 ||
        ::dup2(setup.error, STDERR_FILENO) < 0 || ::chdir(setup.directory) != 0) {
        failed = errno;
    } else {
        // The status pipe is marked to close with the exec; so is everything else of ours.
        ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
        ::execve(setup.argv[0], setup.argv, setup.environment);
        failed = errno;
    }
    const ssize_t told = ::write(setup.status, &failed, sizeof failed);
    ::_exit(told == sizeof failed ? 127 : 126);
}

// The child and a descriptor that becomes readable when it has ended.
struct Child {
    pid_t pid = -1;
    UniqueFd pidfd;
};

Result<Child> start(const ProcessCommand& command, int input, int output, int error) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        return fail(errno_error("pipe", errno));
    }
    UniqueFd told{ends[0]};
    UniqueFd tell{ends[1]};
    std::vector<std::string> argv = command.argv;
    std::vector<std::string> environment = command.environment;
    const auto arguments = pointers(argv);
    const auto variables = pointers(environment);
    const ChildSetup setup{input,
                           output,
                           error,
                           tell.get(),
                           ::getpid(),
                           command.output_bytes,
                           command.directory.c_str(),
                           arguments.data(),
                           variables.data()};
    const pid_t pid = ::fork();
    if (pid == 0) {
        become(setup);
    }
    if (pid < 0) {
        return fail(errno_error("fork", errno));
    }
    ::setpgid(pid, pid);  // here too: kill_all() may come before the child has run
    tell = UniqueFd{};
    int failed = 0;
    if (::read(told.get(), &failed, sizeof failed) == sizeof failed) {
        ::waitpid(pid, nullptr, 0);
        return fail(errno_error("start " + command.argv[0], failed));
    }
    Child out{pid, UniqueFd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))}};
    if (!out.pidfd) {
        const int number = errno;
        ::kill(-pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        return fail(errno_error("pidfd_open", number));
    }
    return out;
}

}  // namespace

Task<Result<ProcessResult>> ProcessRunner::run(ProcessCommand command) {
    const auto begun = std::chrono::steady_clock::now();
    if (command.argv.empty()) {
        co_return fail(Errc::internal, "no program to run");
    }
    const UniqueFd input = memory_file("stdin");
    const UniqueFd output = memory_file("stdout");
    const UniqueFd error = memory_file("stderr");
    if (!input || !output || !error || !write_all(input.get(), command.input)) {
        co_return fail(errno_error("memfd", errno));
    }
    auto child = start(command, input.get(), output.get(), error.get());
    if (!child) {
        co_return fail(child.error());
    }
    const pid_t pid = child->pid;
    groups_.insert(pid);
    net::posix::stream_descriptor ended{io_, child->pidfd.release()};
    net::steady_timer deadline{io_, command.timeout};
    const auto late = std::make_shared<bool>(false);
    deadline.async_wait([late, pid](const ErrorCode& ec) {
        if (!ec) {
            *late = true;
            ::kill(-pid, SIGKILL);
        }
    });
    ErrorCode ec;
    co_await ended.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    deadline.cancel();
    // Its process group ends with it: what a wrapper script left behind must not write on.
    ::kill(-pid, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED);
    groups_.erase(pid);
    ProcessResult result;
    if (info.si_code == CLD_EXITED) {
        result.exit_status = info.si_status;
    } else {
        result.signal = info.si_status;
    }
    result.timed_out = *late;
    result.out = read_all(output.get(), command.output_bytes);
    result.err = read_all(error.get(), command.output_bytes);
    result.took = std::chrono::steady_clock::now() - begun;
    co_return result;
}

void ProcessRunner::kill_all() {
    for (const pid_t group : groups_) {
        ::kill(-group, SIGKILL);
    }
}

}  // namespace lockstep
