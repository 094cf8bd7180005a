#include "job/async/subprocess.hpp"

#include "job/base/launch.hpp"
#include "job/base/start_limits.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>

namespace lockstep {
namespace {

// A program cannot block on a file in memory, whenever it reads it.
UniqueFd input_file() {
    return UniqueFd{::memfd_create("stdin", MFD_CLOEXEC)};
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

// What a program prints, up to a size. Read whenever there is something, so that it never waits for
// us longer than the thread is busy.
class OutputPipe : public std::enable_shared_from_this<OutputPipe> {
  public:
    OutputPipe(net::io_context& io, std::size_t most, std::function<void()> too_much)
        : end_(io), most_(most), too_much_(std::move(too_much)) {}

    // The end that the program writes to; invalid if there are no descriptors left.
    UniqueFd open() {
        std::array<int, 2> ends{-1, -1};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
            return {};
        }
        ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
        end_.assign(ends[0]);
        return UniqueFd{ends[1]};
    }
    void watch() {
        end_.async_wait(net::posix::stream_descriptor::wait_read,
                        [self = shared_from_this()](const ErrorCode& ec) {
                            if (!ec && self->read()) {
                                self->watch();
                            }
                        });
    }
    // All that the program can have left in the pipe. Not up to the end of the file: what it has
    // started in a session of its own may hold the pipe open, and write, for ever.
    std::string finish() {
        too_much_ = nullptr;
        constexpr int kReadsOfAPipe = 128;  // 2 MiB: more than a pipe can hold
        for (int i = 0; i < kReadsOfAPipe && read() && !at_rest_; ++i) {
        }
        ErrorCode ec;
        end_.close(ec);
        return std::move(text_);
    }

    // It printed more than was kept.
    bool overflowed() const { return overflowed_; }

  private:
    // False: nothing more will be read.
    bool read() {
        std::array<char, 16U << 10U> some;  // NOLINT(*-member-init): filled by read
        const ssize_t got = ::read(end_.native_handle(), some.data(), some.size());
        at_rest_ = got < 0 && errno == EAGAIN;
        if (got <= 0) {
            return at_rest_;
        }
        const auto size = static_cast<std::size_t>(got);
        const std::size_t kept = std::min(size, most_ - text_.size());
        text_.append(some.data(), kept);
        overflowed_ = overflowed_ || kept < size;
        if (overflowed_ && too_much_) {
            std::exchange(too_much_, nullptr)();
        }
        return true;
    }

    net::posix::stream_descriptor end_;
    std::size_t most_;
    std::function<void()> too_much_;  // called once
    std::string text_;
    bool at_rest_ = false;
    bool overflowed_ = false;
};

// What the child needs, made before the fork: after it only async-signal-safe calls are allowed.
struct ChildSetup {
    int input;
    int output;
    int error;
    int status;  // gets errno if the program cannot be started
    pid_t parent;
    StartLimits limits;
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
    give_back_limits(setup.limits);
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
    const auto arguments = exec_pointers(argv);
    const auto variables = exec_pointers(environment);
    const ChildSetup setup{input,
                           output,
                           error,
                           tell.get(),
                           ::getpid(),
                           start_limits(),
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
    Child out{pid, open_pidfd(pid)};
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
    const auto group = std::make_shared<pid_t>(-1);
    std::function<void()> too_much;
    if (!command.drop_excess) {
        too_much = [group] { ::kill(-*group, SIGKILL); };
    }
    const auto output = std::make_shared<OutputPipe>(io_, command.output_bytes, too_much);
    const auto error = std::make_shared<OutputPipe>(io_, command.output_bytes, too_much);
    const UniqueFd input = input_file();
    UniqueFd output_end = output->open();
    UniqueFd error_end = error->open();
    if (!input || !output_end || !error_end || !write_all(input.get(), command.input)) {
        co_return fail(errno_error("memfd or pipe", errno));
    }
    auto child = start(command, input.get(), output_end.get(), error_end.get());
    output_end.reset();
    error_end.reset();
    LOCKSTEP_CO_TRY(child);
    const pid_t pid = child->pid;
    *group = pid;
    groups_.insert(pid);
    output->watch();
    error->watch();
    // Shared with a timer whose turn may have come when this function returns.
    const auto ended = std::make_shared<net::posix::stream_descriptor>(io_, child->pidfd.release());
    net::steady_timer deadline{io_, command.timeout};
    const auto late = std::make_shared<bool>(false);
    deadline.async_wait([late, pid](const ErrorCode& ec) {
        if (!ec) {
            *late = true;
            ::kill(-pid, SIGKILL);
        }
    });
    net::steady_timer last{io_, command.timeout + command.give_up};
    if (command.give_up.count() > 0) {
        last.async_wait([ended](const ErrorCode& ec) {
            if (!ec) {
                ErrorCode ignored;
                ended->cancel(ignored);
            }
        });
    }
    ErrorCode ec;
    co_await ended->async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    deadline.cancel();
    last.cancel();
    // Its process group ends with it: what a wrapper script left behind must not write on.
    if (!command.leave_children || *late) {
        ::kill(-pid, SIGKILL);
    }
    groups_.erase(pid);
    ProcessResult result;
    siginfo_t info{};
    const bool given_up = *late && ec;
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | (given_up ? WNOHANG : 0));
    if (given_up && info.si_pid == 0) {
        result.abandoned = true;  // a zombie once its driver lets go of it, until this process ends
    } else if (info.si_code == CLD_EXITED) {
        result.exit_status = info.si_status;
    } else {
        result.signal = info.si_status;
    }
    result.timed_out = *late;
    result.out = output->finish();
    result.err = error->finish();
    if (!command.drop_excess && (output->overflowed() || error->overflowed())) {
        result.overflowed = true;  // also of a program that was faster than its end
        result.exit_status.reset();
        result.signal = SIGKILL;
    }
    result.took = std::chrono::steady_clock::now() - begun;
    co_return result;
}

void ProcessRunner::terminate_all() {
    for (const pid_t group : groups_) {
        ::kill(-group, SIGTERM);
    }
}

void ProcessRunner::kill_all() {
    for (const pid_t group : groups_) {
        ::kill(-group, SIGKILL);
    }
}

}  // namespace lockstep
