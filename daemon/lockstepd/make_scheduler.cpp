#include "daemon/lockstepd/make_scheduler.hpp"

#include "daemon/control/base/shared_folder.hpp"
#include "daemon/lockstepd/copies.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/start_limits.hpp"
#include "job/model/launch/rank_env.hpp"
#include "scheduler-integration/local/local_scheduler.hpp"
#include "scheduler-integration/slurm/batch_text.hpp"
#include "scheduler-integration/slurm/slurm_cli.hpp"
#include "scheduler-integration/slurm/slurm_exec.hpp"
#include "scheduler-integration/slurm/slurm_rest.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"
#include "scheduler-integration/slurm/slurm_users.hpp"

#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::unique_ptr<Scheduler> make_local(net::io_context& io, const DaemonSettings& settings,
                                      std::string agent) {
    LocalScheduler::Options options;
    options.agent_program = std::move(agent);
    Machine machine = read_machine();
    if (settings.local_cores > 0) {
        machine.cores = settings.local_cores;
    }
    if (settings.local_memory_mb > 0) {
        machine.memory_mb = settings.local_memory_mb;
    }
    machine.gpu_names = gpu_names(std::getenv("CUDA_VISIBLE_DEVICES"));
    if (settings.local_gpus >= 0) {
        machine.gpu_names.resize(
            std::min(machine.gpu_names.size(), static_cast<std::size_t>(settings.local_gpus)));
    }
    machine.gpus = settings.local_gpus >= 0 ? settings.local_gpus
                                            : static_cast<std::int32_t>(machine.gpu_names.size());
    options.capacity = machine;
    return std::make_unique<LocalScheduler>(io, std::move(options));
}

SlurmValues values_of(const SlurmCounters& counters) {
    SlurmValues out;
    out.submitted = counters.submitted;
    out.refused = counters.refused;
    out.unclear = counters.unclear;
    out.adopted = counters.adopted;
    out.forgotten = counters.forgotten;
    out.surplus = counters.surplus;
    out.malformed_rows = counters.malformed;
    out.last_success = static_cast<double>(counters.last_success) / 1000.0;
    out.attempts = counters.attempts;
    out.sending = counters.sending;
    out.leftovers = counters.leftovers;
    out.leftovers_cancelled = counters.leftovers_cancelled;
    out.reachable = counters.reachable;
    out.pending_reasons = counters.pending_reasons;
    out.jobs = counters.jobs;
    return out;
}

// slurmd raises its own limits of open files and of core files to the most it may have, and what
// runs below it without a word from sbatch has them so: every rank that crashes would leave its
// whole memory in the job's folder.
std::vector<std::pair<std::string, std::string>> soft_limits() {
    std::vector<std::pair<std::string, std::string>> out;
    rlimit limit{};
    if (::getrlimit(RLIMIT_CORE, &limit) == 0) {
        out.emplace_back("SLURM_RLIMIT_CORE", std::to_string(limit.rlim_cur));
    }
    if (start_limits().open_files > 0) {
        out.emplace_back("SLURM_RLIMIT_NOFILE", std::to_string(start_limits().open_files));
    } else if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        out.emplace_back("SLURM_RLIMIT_NOFILE", std::to_string(limit.rlim_cur));
    }
    return out;
}

// HOME of the user's jobs; "" for one whom this machine does not know.
std::string home_of(const std::string& user) {
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 16'384> room{};
    ::getpwnam_r(user.c_str(), &entry, room.data(), room.size(), &found);
    return found == nullptr ? "" : found->pw_dir;
}

// Where the batch script looks for srun first: where it is here, as sites have Slurm in one place
// on all machines, or beside sbatch if it is not here. "": where the script looks anyway.
std::string srun_folder(const DaemonSettings& settings) {
    if (!settings.slurm_bin_dir.empty()) {
        return settings.slurm_bin_dir;
    }
    std::string folder = folder_of_program("srun", "");
    if (folder.empty()) {
        folder = folder_of_program("sbatch", "");
    }
    if (folder == "/usr/local/bin" || folder == "/usr/bin" || folder == "/bin") {
        return "";
    }
    if (!folder.empty() && !slurm::is_plain_path(folder)) {
        log::warn("batch scripts cannot name this folder: srun must be in /usr/bin of the nodes",
                  {{"folder", folder}});
        return "";
    }
    return folder;
}

SlurmScheduler::Options slurm_options(const DaemonSettings& settings, std::string agent,
                                      SlurmMetrics& metrics) {
    SlurmScheduler::Options options;
    options.agent_path = std::move(agent);
    options.slurm_bin = srun_folder(settings);
    options.poll_min =
        std::chrono::milliseconds{static_cast<std::int64_t>(settings.slurm_poll_seconds * 1000)};
    options.poll_max = std::max(options.poll_max, options.poll_min);
    options.submissions_per_second = settings.slurm_submit_rate;
    options.quarantine = std::chrono::seconds{settings.slurm_quarantine_seconds};
    options.gpus_as_gres = settings.slurm_gres;
    options.over_patience = std::chrono::seconds{settings.slurm_leave_seconds};
    options.doubt_ends = settings.on_external_cancel == "fail";
    options.waited = [&metrics](const std::string& partition, double seconds) {
        metrics.waited(partition, seconds);
    };
    return options;
}

SlurmCli::Options cli_options(const DaemonSettings& settings) {
    SlurmCli::Options cli;
    cli.bin_directory = settings.slurm_bin_dir;
    if (const char* conf = std::getenv("SLURM_CONF")) {
        cli.slurm_conf = conf;
    }
    cli.uid = ::getuid();
    cli.user = std::to_string(cli.uid);
    if (const passwd* entry = ::getpwuid(::getuid())) {
        cli.user = entry->pw_name;
        cli.home = entry->pw_dir;
    }
    return cli;
}

// Each job as the user who has signed it, by lockstep-exec.
Result<std::unique_ptr<Scheduler>> make_slurm_exec(net::io_context& io, const Clock& clock,
                                                   const DaemonSettings& settings,
                                                   SlurmMetrics& metrics,
                                                   const std::filesystem::path& data_directory) {
    auto begun = SlurmSigners::begin(std::make_shared<ExecClient>(settings.exec_socket),
                                     data_directory / "signatures", settings.slurm_gres);
    LOCKSTEP_TRY(begun);
    const std::shared_ptr<SlurmSigners> signers = std::move(*begun);
    set_foreign_folder(signers->runs(), [signers](const std::filesystem::path& path) {
        return signers->open(path);
    });
    const auto make_backend = [&io, &metrics, signers, cli = cli_options(settings)](
                                  const std::string& user, const SlurmUsers::Token&) {
        SlurmCli::Options own = cli;
        if (const auto uid = unix_user(user)) {
            own.uid = *uid;  // whose jobs accounting is asked for
        }
        return std::make_unique<SlurmExec>(
            io, std::move(own),
            [&metrics](std::string_view program, bool good, double seconds) {
                metrics.called(program, good, seconds);
            },
            signers, user);
    };
    // What the scripts hold lockstep-exec's configuration says; here it is for those who look at
    // one before it is made.
    SlurmScheduler::Options options = slurm_options(settings, signers->agent(), metrics);
    options.slurm_bin = signers->slurm_bin();
    auto scheduler =
        std::make_unique<SlurmUsers>(io, clock, make_backend, std::move(options), signers);
    metrics.follow([slurm = scheduler.get()] { return values_of(slurm->counters()); });
    return scheduler;
}

std::unique_ptr<Scheduler> make_slurm(net::io_context& io, const Clock& clock,
                                      const DaemonSettings& settings, std::string agent,
                                      SlurmMetrics& metrics) {
    auto backend = std::make_unique<SlurmCli>(
        io, cli_options(settings), [&metrics](std::string_view program, bool good, double seconds) {
            metrics.called(program, good, seconds);
        });
    auto scheduler = std::make_unique<SlurmScheduler>(
        io, clock, std::move(backend), slurm_options(settings, std::move(agent), metrics));
    metrics.follow([slurm = scheduler.get()] { return values_of(slurm->counters()); });
    return scheduler;
}

Result<RestAddress> slurmrestd_address(const DaemonSettings& settings) {
    auto address = parse_rest_address(settings.slurmrestd_url);
    if (!address) {
        return fail(Errc::invalid, "--slurmrestd-url: " + address.error().message);
    }
    Endpoint& endpoint = address->endpoint;
    if (!settings.slurmrestd_fingerprint.empty()) {
        auto fingerprint = parse_fingerprint(settings.slurmrestd_fingerprint);
        if (!fingerprint || !endpoint.tls) {
            return fail(Errc::invalid,
                        "--slurmrestd-fingerprint: " +
                            (fingerprint ? std::string{"--slurmrestd-url is not https"}
                                         : fingerprint.error().message));
        }
        endpoint.fingerprint = std::move(*fingerprint);
    }
    ErrorCode ec;
    const auto host = net::ip::make_address(endpoint.host, ec);
    const bool near =
        !address->unix_path.empty() || endpoint.host == "localhost" || (!ec && host.is_loopback());
    if (!near && !endpoint.tls) {
        log::warn(
            "users' Slurm tokens go in clear over the network: give slurmrestd a URL with https",
            {{"slurmrestd-url", settings.slurmrestd_url}});
    }
    return address;
}

Result<std::unique_ptr<Scheduler>> make_slurm_users(net::io_context& io, const Clock& clock,
                                                    const DaemonSettings& settings,
                                                    std::string agent, SlurmMetrics& metrics,
                                                    const std::filesystem::path& data_directory) {
    std::filesystem::path runs = settings.runs_dir.empty()
                                     ? data_directory / "runs"
                                     : std::filesystem::absolute(settings.runs_dir);
    LOCKSTEP_TRY(make_private_directories(runs));
    if (::chmod(runs.c_str(), 0711) != 0) {  // each job's folder says who may pass
        return fail(errno_error("chmod " + runs.string(), errno));
    }
    LOCKSTEP_TRY(open_to_others(runs));
    const auto address = slurmrestd_address(settings);
    LOCKSTEP_TRY(address);
    const auto make_backend = [&io, &clock, &metrics, address = *address](const std::string& user,
                                                                          SlurmUsers::Token token) {
        SlurmRest::Options rest;
        rest.address = address;
        rest.user = user;
        rest.home = home_of(user);
        rest.limits = soft_limits();
        rest.token = std::move(token);
        return std::make_unique<SlurmRest>(
            io, clock, std::move(rest),
            [&metrics](std::string_view what, bool good, double seconds) {
                metrics.called(what, good, seconds);
            });
    };
    auto scheduler = std::make_unique<SlurmUsers>(
        io, clock, make_backend, slurm_options(settings, std::move(agent), metrics),
        data_directory / "slurm-tokens");
    metrics.follow([slurm = scheduler.get()] { return values_of(slurm->counters()); });
    return scheduler;
}

// The programs may have been copied without their share folder; each job is warned then, too. An
// agent that is not there is the nodes' business, or refused.
void warn_of_missing_hooks(const std::filesystem::path& agent) {
    const auto hooks = agent.parent_path().parent_path() / kPythonFolder / kPythonHooksModule;
    std::error_code ec;
    if (std::filesystem::exists(agent, ec) && !std::filesystem::exists(hooks, ec)) {
        log::warn(
            "Lockstep's Python hooks are missing: of Python ranks that fail the wrong one may "
            "be named",
            {{"looked_for", hooks.string()}});
    }
}

std::string agent_path_of(const DaemonSettings& settings) {
    if (!settings.agent_path.empty()) {
        return settings.agent_path;
    }
    std::error_code ec;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
    return (self.parent_path() / "lockstep-agent").string();
}

// Words of every batch script: said once, and not of each job that is submitted.
Status check_script_paths(const DaemonSettings& settings) {
    const auto data = data_directory_of(settings);
    const std::array paths{
        std::pair{settings.runs_dir.empty() ? "--data-dir" : "--runs-dir",
                  runs_directory_of(settings, data).string()},
        std::pair{"--agent-path", agent_path_of(settings)},
    };
    for (const auto& [option, path] : paths) {
        if (!slurm::is_plain_path(path)) {
            return fail(Errc::invalid, std::string{option} + ": " + path +
                                           " stands in batch scripts, which take an absolute path "
                                           "of letters, digits and / _ . + -");
        }
    }
    return {};
}

}  // namespace

Status plan_scheduler(const DaemonSettings& settings) {
    // Else every job would silently run as lockstepd's own user.
    if (settings.slurm_identity != "self" && settings.scheduler != "slurm") {
        return fail(Errc::invalid, "--slurm-identity " + settings.slurm_identity +
                                       " needs --scheduler slurm, which is " + settings.scheduler +
                                       " here");
    }
    // lockstep-exec has paths of its own.
    const bool writes_scripts =
        settings.scheduler != "local" && settings.slurm_identity != "lockstep-exec";
    return writes_scripts ? check_script_paths(settings) : Status{};
}

Result<std::unique_ptr<Scheduler>> make_scheduler(net::io_context& io, const Clock& clock,
                                                  const DaemonSettings& settings,
                                                  SlurmMetrics& metrics,
                                                  const std::filesystem::path& data_directory) {
    std::string agent = agent_path_of(settings);
    warn_of_missing_hooks(agent);
    if (settings.scheduler == "slurm" && settings.slurm_identity == "lockstep-exec") {
        return make_slurm_exec(io, clock, settings, metrics, data_directory);
    }
    if (settings.scheduler == "slurm") {
        // The agent's path is the nodes' business: here it may not be there.
        return make_slurm(io, clock, settings, std::move(agent), metrics);
    }
    if (settings.scheduler == "slurmrestd") {
        return make_slurm_users(io, clock, settings, std::move(agent), metrics, data_directory);
    }
    if (::access(agent.c_str(), X_OK) != 0) {
        return fail(errno_error("lockstep-agent at " + agent, errno));
    }
    return make_local(io, settings, std::move(agent));
}

}  // namespace lockstep
