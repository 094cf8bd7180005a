#include "scheduler-integration/exec/user_side.hpp"

#include "scheduler-integration/exec/exec_limits.hpp"
#include "scheduler-integration/slurm/batch_text.hpp"
#include "scheduler-integration/slurm/query_words.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace lockstep::exec {
namespace {

using slurm::only_of;

// Of ESLURM_ACCOUNTING_POLICY, in slurm_errno.c.
constexpr char kPolicy[] =
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy";
constexpr mode_t kUmask = 022;  // of the jobs: sbatch hands on what it has itself

Reply failed(const std::string& what) {
    return {Status::failed, what + ": " + std::strerror(errno)};
}

std::string next_word(std::string& line) {
    const auto end = std::min(line.find(' '), line.size());
    std::string word = line.substr(0, end);
    line.erase(0, end + 1);
    return word;
}

// The folder below `parent`: this user's, and nobody else's to write.
int open_own(int parent, const char* name) {
    const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info{};
    if (fd >= 0 &&
        (::fstat(fd, &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)) {
        ::close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

// The same, made if it is not there.
int own_folder(int parent, const char* name) {
    return ::mkdirat(parent, name, 0700) != 0 && errno != EEXIST ? -1 : open_own(parent, name);
}

// Readers see the old or the new file, never a part; and it is durable: agents may read it on
// another machine at once.
bool write_file(int folder, const char* name, const std::string& text, mode_t mode) {
    const std::string temporary = std::string{name} + ".new";
    ::unlinkat(folder, temporary.c_str(), 0);
    const int fd = ::openat(folder, temporary.c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) {
        return false;
    }
    std::size_t at = 0;
    ssize_t put = 0;
    while (at < text.size() && (put = ::write(fd, text.data() + at, text.size() - at)) > 0) {
        at += static_cast<std::size_t>(put);
    }
    const bool good = at == text.size() && ::fchmod(fd, mode) == 0 && ::fsync(fd) == 0;
    ::close(fd);
    return good && ::renameat(folder, temporary.c_str(), folder, name) == 0 && ::fsync(folder) == 0;
}

struct Program {
    const Config& config;
    const Person& person;
    const rlimit& core;
};

// Ends with lockstepd's connection: an sbatch that outlived it could hand in a job that nobody
// expects any more.
Reply run(const Program& where, const std::string& program, std::vector<std::string> words,
          bool for_reading) {
    const std::string path = where.config.slurm_bin + "/" + program;
    words.insert(words.begin(), path);
    std::vector<std::string> environment{"PATH=/usr/bin:/bin", "HOME=" + where.person.home,
                                         "USER=" + where.person.name,
                                         "LOGNAME=" + where.person.name};
    if (!where.config.slurm_conf.empty()) {
        environment.push_back("SLURM_CONF=" + where.config.slurm_conf);
    }
    if (for_reading) {
        environment.insert(environment.end(), kSlurmTextEnvironment.begin(),
                           kSlurmTextEnvironment.end());
    }
    std::vector<char*> argv;
    std::vector<char*> envp;
    for (std::string& word : words) {
        argv.push_back(word.data());
    }
    for (std::string& one : environment) {
        envp.push_back(one.data());
    }
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    int out[2];
    int err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
        return failed("pipe");
    }
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) {
        return failed("fork");
    }
    if (child == 0) {
        const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == parent && nothing >= 0 &&
            ::dup2(nothing, 0) == 0 && ::dup2(out[1], 1) == 1 && ::dup2(err[1], 2) == 2 &&
            ::setrlimit(RLIMIT_CORE, &where.core) == 0) {
            ::umask(kUmask);
            ::execve(path.c_str(), argv.data(), envp.data());
        }
        ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    Reply reply;
    pollfd watched[3] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {0, POLLRDHUP, 0}};
    std::string* texts[2] = {&reply.out, &reply.err};
    while (watched[0].fd >= 0 || watched[1].fd >= 0) {
        if (::poll(watched, 3, -1) < 0 && errno != EINTR) {
            break;
        }
        if (watched[2].revents != 0) {  // the caller has gone
            ::kill(child, SIGKILL);
            ::_exit(1);
        }
        for (int i = 0; i < 2; ++i) {
            char piece[16'384];
            if (watched[i].fd < 0 || watched[i].revents == 0) {
                continue;
            }
            const ssize_t got = ::read(watched[i].fd, piece, sizeof piece);
            if (got <= 0 ||
                texts[i]->size() + static_cast<std::size_t>(got) > limits::kExecOutputBytes) {
                ::close(watched[i].fd);  // more than that ends the program: SIGPIPE
                watched[i].fd = -1;
            } else {
                texts[i]->append(piece, static_cast<std::size_t>(got));
            }
        }
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    reply.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    reply.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return reply;
}

std::string attempt_name(const Order& order) {
    return "a" + std::to_string(order.attempt);
}

// The ticket's file of an attempt that was submitted, whose folders are there: none is made.
Reply refresh(const Program& where, const Order& order) {
    const int runs = ::open(where.config.runs.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int mine = runs < 0 ? -1 : open_own(runs, where.person.name.c_str());
    const int job = mine < 0 ? -1 : open_own(mine, order.job);
    const int attempt = job < 0 ? -1 : open_own(job, attempt_name(order).c_str());
    if (attempt < 0 && errno == ENOENT) {
        return {Status::refused, "there is no such attempt"};
    }
    return attempt >= 0 && write_file(attempt, "agent.json", order.ticket, 0600)
               ? Reply{}
               : failed("agent.json");
}

Reply submit(const Program& where, const Order& order) {
    Signed asked;
    if (!read_statement(order.statement, order.point, asked)) {
        return {Status::refused, "the statement does not read, or has no such job"};
    }
    const int runs = ::open(where.config.runs.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int mine = runs < 0 ? -1 : own_folder(runs, where.person.name.c_str());
    const int job = mine < 0 ? -1 : own_folder(mine, order.job);
    const int attempt = job < 0 ? -1 : own_folder(job, attempt_name(order).c_str());
    if (attempt < 0 || own_folder(job, "checkpoints") < 0) {
        return failed(where.config.runs + "/" + where.person.name);
    }
    if (!write_file(attempt, "agent.json", order.ticket, 0600)) {
        return failed("agent.json");
    }
    slurm::BatchText parts;
    parts.title = std::string{"job "} + order.job + ", attempt " + std::to_string(order.attempt);
    parts.name = slurm::batch_job_name(asked.name, order.job, order.attempt);
    parts.directory = attempt_folder(where.config, where.person, order);
    parts.agent_path = where.config.agent;
    parts.slurm_bin = where.config.slurm_bin;
    parts.agent_words = " --signed " + asked.document + "/" + std::to_string(order.point);
    parts.sbatch = asked.sbatch;
    parts.srun = asked.srun;
    parts.ranks_per_node = asked.ranks_per_node;
    parts.excluded = order.exclude;
    parts.time = order.time;
    parts.has_nil = order.nil != 0;
    std::string script;
    if (!slurm::make_batch_text(parts, script)) {
        return {Status::refused, script + " cannot stand in a batch script"};
    }
    if (!write_file(attempt, "batch.sh", script, 0700)) {
        return failed("batch.sh");
    }
    return run(where, "sbatch", {"--parsable", parts.directory + "/batch.sh"}, false);
}

Reply open_log(const Config& config, const Person& person, const Order& order) {
    const std::string folder = attempt_folder(config, person, order);
    const int below = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    open_how how{};
    how.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    const long fd = below < 0 ? -1 : ::syscall(SYS_openat2, below, order.file, &how, sizeof how);
    if (fd < 0) {
        // Readers that wait for a log need the difference.
        return {errno == ENOENT ? Status::failed : Status::refused, std::strerror(errno)};
    }
    struct stat info{};
    if (::fstat(static_cast<int>(fd), &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_uid != person.uid || info.st_nlink != 1) {
        return {Status::refused, "no regular file of the user's own"};
    }
    Reply reply;
    reply.descriptor = static_cast<int>(fd);
    return reply;
}

Reply query(const Program& where, const Order& order) {
    switch (static_cast<What>(order.what)) {
        case What::jobs:
            return run(where, "squeue", squeue_arguments(order.fence, where.person.name), true);
        case What::history:
            return run(where, "sacct", sacct_arguments(where.person.name, order.since, order.name),
                       true);
        case What::job:
            return run(where, "scontrol", show_job_arguments(order.slurm_job), true);
        default:
            return {Status::refused, "no such query"};
    }
}

}  // namespace

bool read_statement(const std::string& text, unsigned long point, Signed& out) {
    bool wanted = false;
    bool found = false;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find('\n', at), text.size());
        std::string line = text.substr(at, end - at);
        at = end + 1;
        const std::string key = next_word(line);
        if (key == "document") {
            out.document = line;
        } else if (key == "jobs") {  // <first>-<last> <ranks per node> <name>
            const std::string range = next_word(line);
            char* dash = nullptr;
            const unsigned long first = std::strtoul(range.c_str(), &dash, 10);
            const unsigned long last = *dash == '-' ? std::strtoul(dash + 1, nullptr, 10) : 0;
            wanted = !found && first <= point && point <= last;
            if (wanted) {
                found = true;
                out.ranks_per_node = next_word(line);
                out.name = line;
            }
        } else if (wanted && (key == "sbatch" || key == "srun")) {
            const auto equals = line.find('=');
            const bool has_value = equals != std::string::npos;
            (key == "sbatch" ? out.sbatch : out.srun)
                .emplace_back(line.substr(0, equals), has_value ? line.substr(equals + 1) : "");
        }
    }
    return found && out.document.size() == 64 && only_of(out.document, "") && !out.name.empty() &&
           only_of(out.ranks_per_node, "");
}

std::string attempt_folder(const Config& config, const Person& person, const Order& order) {
    return config.runs + "/" + person.name + "/" + order.job + "/" + attempt_name(order);
}

Reply act(const Config& config, const Person& person, const Order& order, const rlimit& core) {
    const Program where{config, person, core};
    switch (static_cast<Verb>(order.verb)) {
        case Verb::submit:
            return order.what == static_cast<std::uint32_t>(What::refresh) ? refresh(where, order)
                                                                           : submit(where, order);
        case Verb::cancel:
            return run(where, "scancel",
                       {std::string{"--name="} + order.name, std::to_string(order.slurm_job)},
                       false);
        case Verb::query:
            return query(where, order);
        case Verb::open_log:
            return open_log(config, person, order);
    }
    return {Status::refused, "no such verb"};
}

bool is_refused_by_policy(const Reply& reply) {
    // The last of sbatch's lines is slurmctld's answer; before it is the limit's name. A reply that
    // was lost has another sentence in that place.
    const bool no =
        reply.status == Status::done && reply.signal == 0 && reply.exit == 1 && reply.out.empty();
    const auto at = reply.err.rfind("sbatch: error: ");
    return no && at != std::string::npos && reply.err.compare(at, sizeof kPolicy - 1, kPolicy) == 0;
}

}  // namespace lockstep::exec
