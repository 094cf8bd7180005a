// lockstep-exec: what root lets lockstepd do in other users' names, as long as each of them has
// signed it. systemd starts one for each connection (lockstep-exec.socket, Accept=yes): the
// connection is descriptor 0. README.md has the reasons and the picture.
//
//   lockstep-exec [CONFIG]          serves the connection on descriptor 0, once
//   lockstep-exec --check [CONFIG]  says what is wrong with the configuration
#include "scheduler-integration/exec/config.hpp"
#include "scheduler-integration/exec/exec_limits.hpp"
#include "scheduler-integration/exec/order.hpp"
#include "scheduler-integration/exec/person.hpp"
#include "scheduler-integration/exec/reply.hpp"
#include "scheduler-integration/exec/signature.hpp"
#include "scheduler-integration/exec/user_side.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace lockstep::exec {
namespace {

constexpr uid_t kNobody = 65'534;

Order order;  // too large for the stack; zero until it has been read
unsigned char frame[kFrameBytes];

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "lockstep-exec: refused: %s\n", why.c_str());
    send_reply({Status::refused, why});
    ::_exit(1);
}

bool read_whole(int fd, void* into, std::size_t size) {
    auto* at = static_cast<unsigned char*>(into);
    while (size > 0) {
        const ssize_t got = ::read(fd, at, size);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        size -= got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    return true;
}

#if defined(__x86_64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_AARCH64;
#else
#error "seccomp: which machine is this?"
#endif

// From here on read, write and exit are all the calls that this process has. A filter, for the
// kernel refuses the strict mode, which is the same, to whoever has a filter already: systemd puts
// several before the unit's program.
bool only_read_write_and_exit() {
    constexpr std::uint32_t kCall = offsetof(seccomp_data, nr);
    constexpr std::uint32_t kOf = offsetof(seccomp_data, arch);
    sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kOf),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMachine, 0, 4),
                           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kCall),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_read, 3, 0),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 2, 0),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit, 1, 0),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// No return.
[[noreturn]] void read_and_pass_on(int pipe) {
    std::uint32_t head[2] = {0, 0};
    const char* problem = "no request";
    if (read_whole(0, head, sizeof head) && head[0] == kMagic && head[1] <= sizeof frame &&
        read_whole(0, frame, head[1])) {
        problem = read_order(frame, head[1], order);
    }
    const auto* at = reinterpret_cast<const char*>(&order);
    std::size_t rest = problem == nullptr ? sizeof order : 0;
    while (rest > 0) {
        const ssize_t put = ::write(pipe, at, rest);
        if (put <= 0) {
            break;
        }
        at += put;
        rest -= static_cast<std::size_t>(put);
    }
    for (;;) {
        ::syscall(SYS_exit, problem == nullptr && rest == 0 ? 0 : 1);
    }
}

// What the peer wants, as a process says that has no rights to lose.
void take_order() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        refuse("no pipe");
    }
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(ends[0]);
        ::alarm(limits::kExecRequestSeconds);
        if (!become_nobody(kNobody, kNobody).empty() || ::prctl(PR_SET_DUMPABLE, 0) != 0 ||
            !only_read_write_and_exit()) {
            ::_exit(2);
        }
        read_and_pass_on(ends[1]);
    }
    ::close(ends[1]);
    char more = 0;
    const bool whole =
        child > 0 && read_whole(ends[0], &order, sizeof order) && ::read(ends[0], &more, 1) == 0;
    ::close(ends[0]);
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        refuse(WIFEXITED(status) && WEXITSTATUS(status) == 2
                   ? "the reader could not give up its rights"
                   : "the request does not read");
    }
}

// A file server may refuse to let root make a folder; then the user does, if everybody may.
void make_user_folder(const Config& config, const Person& person) {
    int runs = -1;
    if (!open_checked(config.runs, true, runs).empty()) {
        return;
    }
    const char* name = person.name.c_str();
    if (::mkdirat(runs, name, 0700) == 0 &&
        ::fchownat(runs, name, person.uid, person.gid, AT_SYMLINK_NOFOLLOW) != 0) {
        ::unlinkat(runs, name, AT_REMOVEDIR);
    }
    ::close(runs);
}

// Nothing is inherited from the parent process: descriptors, signals, environment, umask.
void start_clean(rlimit& core) {
    for (int fd = 0; fd < 3; ++fd) {
        if (::fcntl(fd, F_GETFD) < 0) {
            static_cast<void>(::open("/dev/null", O_RDWR));
        }
    }
    if (::close_range(3, ~0U, 0) != 0) {
        refuse("close_range");
    }
    for (int number = 1; number < NSIG; ++number) {
        ::signal(number, SIG_DFL);
    }
    ::signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::clearenv();
    ::umask(077);
    rlimit soft_none{};
    if (::chdir("/") != 0 || ::getrlimit(RLIMIT_CORE, &core) != 0) {
        refuse("the process cannot be made safe");
    }
    // The hard limit stays: no user could raise it again for the jobs (seen: exit 127 of every
    // program).
    soft_none.rlim_max = core.rlim_max;
    if (::setrlimit(RLIMIT_CORE, &soft_none) != 0) {
        refuse("the process cannot be made safe");
    }
}

std::string about(const Config& config) {
    return "audience " + config.audience + "\nruns " + config.runs + "\nagent " + config.agent +
           "\nslurm-bin " + config.slurm_bin + "\n";
}

int serve(const std::string& path, const rlimit& core) {
    Config config;
    if (const std::string problem = load_config(path, config); !problem.empty()) {
        refuse("configuration: " + problem);
    }
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(0, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer ||
        std::find(config.callers.begin(), config.callers.end(), peer.uid) == config.callers.end()) {
        refuse("the caller is not among the callers of the configuration");
    }
    take_order();
    if (const char* problem = check_order(order)) {
        refuse(problem);
    }
    if (order.verb == static_cast<std::uint32_t>(Verb::query) &&
        order.what == static_cast<std::uint32_t>(What::about)) {
        send_reply({Status::done, about(config)});
        return 0;
    }
    Signature signature;
    if (const std::string problem = verify(config, order, signature); !problem.empty()) {
        refuse(problem);
    }
    const Person& person = signature.signer;
    if (order.what == static_cast<std::uint32_t>(What::signature)) {
        send_reply(
            {Status::done,
             person.name + " " + std::to_string(signature.made_at + config.max_days * 86'400)});
        return 0;
    }
    int count = -1;
    if (order.verb == static_cast<std::uint32_t>(Verb::submit)) {
        const bool refreshes = order.what == static_cast<std::uint32_t>(What::refresh);
        const std::string problem =
            refreshes ? find_use(config, order, signature)
                      : count_use(config, order, signature, std::time(nullptr), count);
        if (!problem.empty()) {
            refuse(problem);
        }
        if (!refreshes) {
            make_user_folder(config, person);
        }
    }
    std::fprintf(stderr, "lockstep-exec: verb %u.%u for %s, job %s a%u, signature %s\n", order.verb,
                 order.what, person.name.c_str(), order.job[0] != '\0' ? order.job : order.name,
                 order.attempt, signature.hash.c_str());
    if (const std::string problem = become(person); !problem.empty()) {
        refuse("cannot become " + person.name + ": " + problem);
    }
    const Reply reply = act(config, person, order, core);
    // lockstepd tries again until others have ended, every few seconds for days.
    if (count >= 0 && is_refused_by_policy(reply)) {
        take_back(count, order.job);
    }
    send_reply(reply);
    return 0;
}

}  // namespace
}  // namespace lockstep::exec

int main(int argc, char** argv) {
    using namespace lockstep::exec;
    const bool check = argc > 1 && std::strcmp(argv[1], "--check") == 0;
    const std::string path = argc > 1 + check ? argv[1 + check] : kConfigPath;
    // Never setuid: it must be started by root.
    if (argc > 2 + check || ::getauxval(AT_SECURE) != 0 || ::getuid() != 0 || ::geteuid() != 0) {
        std::fputs(
            "lockstep-exec: is started by root (systemd), with a path of its configuration at "
            "most\n",
            stderr);
        return 1;
    }
    rlimit core{};
    start_clean(core);
    ::alarm(lockstep::limits::kExecTotalSeconds);
    if (check) {
        Config config;
        const std::string problem = load_config(path, config);
        std::printf("%s\n", problem.empty() ? "good" : problem.c_str());
        return problem.empty() ? 0 : 1;
    }
    return serve(path, core);
}
