#include "job/cli/child.hpp"

#include "job/base/launch.hpp"
#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace lockstep::cli {
namespace {

struct Pipe {
    UniqueFd read;
    UniqueFd write;
    static Result<Pipe> open() {
        int ends[2] = {-1, -1};
        if (::pipe2(ends, O_CLOEXEC) != 0) {
            return fail(errno_error("pipe", errno));
        }
        return Pipe{UniqueFd{ends[0]}, UniqueFd{ends[1]}};
    }
};

// Reads both until both have ended; false when time or room was over.
bool read_both(const Pipe& out, const Pipe& err, std::string& said, std::string& complained,
               std::chrono::steady_clock::time_point until, std::size_t most) {
    std::array<pollfd, 2> ends{{{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    std::array<std::string*, 2> texts{&said, &complained};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                              until - std::chrono::steady_clock::now())
                              .count();
        if (left <= 0 || said.size() > most ||
            ::poll(ends.data(), ends.size(), static_cast<int>(left)) == 0) {
            return false;
        }
        for (std::size_t i = 0; i < ends.size(); ++i) {
            if (ends[i].fd < 0 || ends[i].revents == 0) {
                continue;
            }
            std::array<char, 65'536> buffer{};
            const ssize_t got = ::read(ends[i].fd, buffer.data(), buffer.size());
            if (got > 0) {
                texts[i]->append(buffer.data(), static_cast<std::size_t>(got));
            } else {
                ends[i].fd = -1;
            }
        }
    }
    return true;
}

}  // namespace

Result<std::string> output_of(const std::vector<std::string>& argv, const std::string& directory,
                              std::chrono::milliseconds patience, std::size_t most) {
    auto out = Pipe::open();
    auto err = Pipe::open();
    if (!out || !err) {
        return fail(!out ? out.error() : err.error());
    }
    LaunchPlan launching;
    launching.program = argv.front();
    launching.argv = argv;
    launching.directory = directory;
    launching.output = out->write.get();
    launching.error = err->write.get();
    pid_t pid = -1;
    if (const int failed = launch(launching, pid); failed != 0) {
        return fail(errno_error(argv.front(), failed));
    }
    out->write = UniqueFd{};
    err->write = UniqueFd{};
    std::string said;
    std::string complained;
    const auto until = std::chrono::steady_clock::now() + patience;
    const bool whole = read_both(*out, *err, said, complained, until, most);
    if (!whole) {
        ::kill(pid, SIGKILL);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (said.size() > most) {
        said.resize(most);
        return said;
    }
    if (!whole) {
        return fail(Errc::timed_out, argv.front() + " did not end in time");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        const std::string words_of_it = printable(trim(complained));
        return fail(Errc::invalid,
                    argv.front() + ": " + (words_of_it.empty() ? "failed" : words_of_it));
    }
    return said;
}

Result<pid_t> start_detached(const std::vector<std::string>& argv,
                             const std::vector<std::string>& environment, const std::string& log) {
    LaunchPlan launching;
    launching.program = argv.front();
    launching.argv = argv;
    launching.environment = environment;
    launching.directory = "/";
    launching.log = log;
    launching.log_may_be_link = true;
    launching.group = ProcessGroup::session;
    pid_t pid = -1;
    if (const int failed = launch(launching, pid); failed != 0) {
        return fail(errno_error("start " + argv.front(), failed));
    }
    return pid;
}

}  // namespace lockstep::cli
