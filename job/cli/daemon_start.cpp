#include "job/cli/daemon_start.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"
#include "job/cli/access.hpp"
#include "job/cli/caller.hpp"
#include "job/cli/child.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/client.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds kStartTurn{20};
constexpr std::size_t kLogWords = 2000;

std::string program_beside() {
    std::error_code ec;
    const fs::path self = fs::read_symlink("/proc/self/exe", ec);
    const fs::path beside = self.parent_path() / "lockstepd";
    if (!ec && ::access(beside.c_str(), X_OK) == 0) {
        return beside.string();
    }
    return find_on_path("lockstepd", Caller::here()).value_or("");
}

// A cluster's configuration is where its programs look for it.
bool slurm_is_set_up(const Caller& caller) {
    if (!find_on_path("sbatch", caller)) {
        return false;
    }
    if (!caller.variable("SLURM_CONF").empty()) {
        return true;
    }
    std::error_code ec;
    for (const char* file : {"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf",
                             "/run/slurm/conf/slurm.conf", "/usr/local/etc/slurm.conf"}) {
        if (fs::exists(file, ec)) {
            return true;
        }
    }
    return false;
}

// This machine's address on the way to another, "" if there is none but loopback.
std::string address_towards(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) {
        return "";
    }
    std::string out;
    const UniqueFd probe{::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    // Nothing is sent: the kernel only chooses the way.
    if (probe && ::connect(probe.get(), found->ai_addr, found->ai_addrlen) == 0 &&
        ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0) {
        std::array<char, 256> text{};
        if (::getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(), text.size(),
                          nullptr, 0, NI_NUMERICHOST) == 0) {
            out = text.data();
        }
    }
    ::freeaddrinfo(found);
    const bool loopback = out.starts_with("127.") || out == "::1";
    return loopback ? "" : out;
}

// Where Slurm's nodes reach this machine, "" if that cannot be told: lockstepd then takes its first
// address.
std::string address_for_nodes() {
    const auto nodes =
        output_of({"scontrol", "-o", "show", "nodes"}, "/", limits::kScontrolPatience, 65'536);
    if (!nodes) {
        return "";
    }
    constexpr std::string_view kKey = "NodeAddr=";
    const std::size_t at = nodes->find(kKey);
    if (at == std::string::npos) {
        return "";
    }
    const std::size_t from = at + kKey.size();
    return address_towards(nodes->substr(from, nodes->find(' ', from) - from));
}

// The daemon's own environment: the caller's, without what belongs to this program, to an
// allocation, or to the programs of a Python environment.
std::vector<std::string> daemon_environment(const Caller& caller) {
    std::vector<std::string> out;
    for (const auto& [name, value] : caller.environment) {
        const bool slurms =
            (name.starts_with("SLURM_") || name.starts_with("SBATCH_")) && name != "SLURM_CONF";
        const bool ours = name == "LOCKSTEP_URL" || name == "LOCKSTEP_TOKEN" ||
                          name == "LOCKSTEP_FINGERPRINT" || name == "LOCKSTEP_DATA_DIR";
        if (!slurms && !ours && !name.starts_with("LD_")) {
            out.emplace_back(name).append("=").append(value);
        }
    }
    return out;
}

Status wait_for_address(const std::string& data, pid_t child, const std::string& log) {
    const auto until = std::chrono::steady_clock::now() + limits::kDaemonStartPatience;
    std::error_code ec;
    while (std::chrono::steady_clock::now() < until) {
        if (fs::exists(data + "/url", ec)) {
            return {};
        }
        if (child > 0 && ::waitpid(child, nullptr, WNOHANG) == child) {
            const auto words = read_plain_tail(log, kLogWords);
            return fail(Errc::unavailable, "lockstepd ended at once; it said (" + log +
                                               "): " + (words ? printable(trim(*words)) : ""));
        }
        if (child < 0 && !daemon_holds(data)) {
            return fail(Errc::unavailable, "lockstepd has just ended; try again");
        }
        std::this_thread::sleep_for(kStartTurn);
    }
    return fail(Errc::unavailable, "lockstepd does not say where it listens; its log is " + log);
}

Status start_daemon(const Options& options, const std::string& data, std::ostream& err) {
    const std::string program = program_beside();
    if (program.empty()) {
        return fail(Errc::unavailable,
                    "no lockstepd runs here, and there is none beside this program or on PATH to "
                    "be started; another one: --url, LOCKSTEP_URL, lockstep login");
    }
    const Caller caller = Caller::here();
    std::vector<std::string> argv{program, "--data-dir", data};
    if (caller.variable("LOCKSTEP_LISTEN").empty()) {
        argv.insert(argv.end(), {"--listen", "127.0.0.1:0"});
    }
    std::string scheduler = caller.variable("LOCKSTEP_SCHEDULER");
    if (scheduler.empty()) {
        scheduler = slurm_is_set_up(caller) ? "slurm" : "local";
        argv.insert(argv.end(), {"--scheduler", scheduler});
    }
    if (scheduler == "slurm" && caller.variable("LOCKSTEP_AGENT_LISTEN").empty()) {
        if (std::string address = address_for_nodes(); !address.empty()) {
            const bool six = address.find(':') != std::string::npos;
            argv.insert(argv.end(),
                        {"--agent-listen", (six ? "[" + address + "]" : address) + ":0"});
        }
    }
    std::error_code ec;
    fs::remove(data + "/url", ec);  // of one that is gone
    const std::string log = data + "/lockstepd.log";
    const auto child = start_detached(argv, daemon_environment(caller), log);
    LOCKSTEP_TRY(child);
    if (Status up = wait_for_address(data, *child, log); !up) {
        return up;
    }
    err << "no lockstepd was running: started one for you (pid " << *child << ", scheduler "
        << scheduler << "), which stays\n  log " << log << "\n  to stop it: kill " << *child
        << (options.data_dir.empty() ? "" : "   (data directory " + data + ")") << "\n";
    return {};
}

}  // namespace

bool daemon_holds(const std::string& data_directory) {
    const UniqueFd lock{
        ::open((data_directory + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
    if (!lock) {
        return false;
    }
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return ::fcntl(lock.get(), F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

Status ensure_daemon(const Options& options, std::ostream& err) {
    const auto file = read_config(options);
    LOCKSTEP_TRY(file);
    if (!options.url.empty() || !file->url.empty()) {
        return {};
    }
    std::error_code ec;
    const fs::path given = fs::absolute(data_directory(options), ec);
    if (ec) {  // the directory that it is relative to is not there any more
        return fail(Errc::invalid, "data directory " + options.data_dir + ": " + ec.message());
    }
    const std::string data = given.lexically_normal().string();
    if (Status made = make_private_directories(data); !made) {
        return made;
    }
    if (daemon_holds(data)) {
        return wait_for_address(data, -1, data + "/lockstepd.log");
    }
    const UniqueFd turn{
        ::open((data + "/start.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!turn || ::flock(turn.get(), LOCK_EX) != 0) {
        return fail(errno_error(data + "/start.lock", errno));
    }
    if (daemon_holds(data)) {  // another process was first and has started it
        return wait_for_address(data, -1, data + "/lockstepd.log");
    }
    return start_daemon(options, data, err);
}

}  // namespace lockstep::cli
