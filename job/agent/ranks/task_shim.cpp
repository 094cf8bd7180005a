#include "job/agent/ranks/task_shim.hpp"

#include "job/agent/ranks/spawn.hpp"
#include "job/agent/ranks/task_wire.hpp"
#include "job/base/files.hpp"
#include "job/base/launch.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lockstep {
namespace {

constexpr int kNotStarted = 125;

int complain(const std::string& why) {
    std::fprintf(stderr, "lockstep-agent task: %s\n", why.c_str());
    return kNotStarted;
}

std::int32_t number_in(const char* name) {
    const char* text = std::getenv(name);
    const auto number = text == nullptr ? std::nullopt : to_int(text);
    return number && *number >= 0 && *number <= limits::kRanks ? static_cast<std::int32_t>(*number)
                                                               : -1;
}

Result<UniqueFd> connect_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) {
        return fail(Errc::invalid, "no path of a socket");
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        return fail(errno_error("no agent at " + path, errno));
    }
    return fd;
}

// The first byte brings the descriptor along.
bool send_all(int socket, const std::string& text, int passed = -1) {
    const std::string bytes = task_wire::frame(text);
    std::size_t done = 0;
    while (done < bytes.size()) {
        iovec part{const_cast<char*>(bytes.data()) + done, bytes.size() - done};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (passed >= 0 && done == 0) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            cmsghdr* header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
        }
        const ssize_t wrote = ::sendmsg(socket, &message, MSG_NOSIGNAL);
        if (wrote > 0) {
            done += static_cast<std::size_t>(wrote);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

Result<std::string> wait_frame(int socket) {
    task_wire::Reader reader;
    for (;;) {
        auto whole = reader.next();
        LOCKSTEP_TRY(whole);
        if (*whole) {
            return std::move(**whole);
        }
        pollfd readable{socket, POLLIN, 0};
        ::poll(&readable, 1, -1);
        UniqueFd none;
        const auto bytes = task_wire::receive(socket, none);
        LOCKSTEP_TRY(bytes);
        reader.feed(*bytes);
    }
}

// In the child: only returns if it fails.
int become(const task_wire::Plan& plan, int output, pid_t parent) {
    ::setpgid(0, 0);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    ::clearenv();
    for (const auto& [name, value] : plan.environment) {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    std::vector<std::string> words{std::to_string(parent), "0", plan.directory, plan.program};
    words.insert(words.end(), plan.argv.begin(), plan.argv.end());
    std::vector<char*> argv;
    for (std::string& word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    return run_exec_shim(static_cast<int>(words.size()), argv.data());
}

// Until the child has ended; an agent that has gone takes it along.
task_wire::Exited watch(pid_t child, int socket) {
    const UniqueFd pidfd = open_pidfd(child);
    std::array<pollfd, 2> what{{{pidfd.get(), POLLIN, 0}, {socket, POLLIN, 0}}};
    while (::poll(what.data(), what.size(), -1) < 0 || (what[0].revents & POLLIN) == 0) {
        if ((what[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            ::kill(-child, SIGKILL);
            what[1].fd = -1;
        }
    }
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
    ::kill(-child, SIGKILL);  // what it left behind; its number is nobody else's until it is reaped
    ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED);
    task_wire::Exited out;
    out.exit_code = info.si_code == CLD_EXITED ? info.si_status : -1;
    out.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    return out;
}

std::map<std::string, std::string> own_environment() {
    std::map<std::string, std::string> out;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text{*entry};
        if (const auto equals = text.find('='); equals != std::string_view::npos && equals > 0) {
            out.emplace(text.substr(0, equals), text.substr(equals + 1));
        }
    }
    return out;
}

}  // namespace

int run_task(const std::filesystem::path& attempt_directory) {
    task_wire::Hello hello;
    hello.rank = number_in("SLURM_PROCID");
    hello.local_rank = number_in("SLURM_LOCALID");
    hello.generation = number_in(kTaskGeneration);
    const std::int32_t node = number_in("SLURM_NODEID");
    if (hello.rank < 0 || hello.local_rank < 0 || hello.generation < 0 || node < 0) {
        return complain("is for srun, which the agent starts");
    }
    hello.environment = own_environment();
    const auto path = read_file(attempt_directory / task_wire::file_name(node), limits::kPathBytes);
    if (!path) {
        return complain(path.error().message);
    }
    const auto socket = connect_to(*path);
    if (!socket) {
        return complain(socket.error().message);
    }
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return complain("no pipe");
    }
    UniqueFd read_end{ends[0]};
    UniqueFd write_end{ends[1]};
    const bool asked = send_all(socket->get(), encode(hello), read_end.get());
    read_end.reset();
    const auto answer = asked ? wait_frame(socket->get())
                              : Result<std::string>{fail(Errc::unavailable, "the agent has gone")};
    const auto plan =
        answer ? task_wire::decode_plan(*answer) : Result<task_wire::Plan>{fail(answer.error())};
    if (!plan || !plan->refused.empty()) {
        return complain(plan ? plan->refused : plan.error().message);
    }
    const pid_t self = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(become(*plan, write_end.get(), self));
    }
    if (child < 0) {
        return complain("cannot fork");
    }
    ::setpgid(child, child);
    write_end.reset();
    // Slurm's signals reach every process of a step; this one has to see the end of the other.
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
        ::signal(number, SIG_IGN);
    }
    send_all(socket->get(), task_wire::encode_pid(child));
    const task_wire::Exited exited = watch(child, socket->get());
    send_all(socket->get(), encode(exited));
    return exited.signal != 0 ? 128 + exited.signal : exited.exit_code;
}

}  // namespace lockstep
