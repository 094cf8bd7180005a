// size: the table of all settings
#include "daemon/lockstepd/settings.hpp"

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"
#include "job/base/version.hpp"
#include "job/cli/manual.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

// Empty, or what is wrong: the page makes links of it, so that it must be nothing but an address.
std::string web_address(const std::string& text) {
    const bool web = text.starts_with("https://") || text.starts_with("http://");
    const bool plain = text.find_first_of(" \t\r\n\"'<>?#") == std::string::npos;
    return web && plain ? std::string{} : "must be an address with http:// or https://";
}

void declare_listeners(CLI::App& app, DaemonSettings& settings) {
    app.add_option("--listen", settings.listen,
                   "Address and port of the HTTP API; port 0 takes a free one. Beyond loopback it "
                   "speaks TLS")
        ->envname("LOCKSTEP_LISTEN")
        ->type_name("HOST:PORT");
    app.add_option("--agent-listen", settings.agent_listen,
                   "Address and port for agents alone; default: the same listener, with Slurm a "
                   "free port of this machine's first address")
        ->envname("LOCKSTEP_AGENT_LISTEN")
        ->type_name("HOST:PORT");
    app.add_option("--agent-url", settings.agent_url,
                   "Address given to agents; default: the address lockstepd listens on for them")
        ->envname("LOCKSTEP_AGENT_URL")
        ->type_name("URL");
    app.add_option("--metrics-listen", settings.metrics_listen,
                   "Address and port for /metrics alone; default: the same listener")
        ->envname("LOCKSTEP_METRICS_LISTEN")
        ->type_name("HOST:PORT");
    app.add_option("--tls", settings.tls, "auto: TLS beyond loopback; always: on loopback too")
        ->envname("LOCKSTEP_TLS")
        ->check(CLI::IsMember({"auto", "always"}));
    app.add_option("--tls-certificate", settings.tls_certificate,
                   "File of the certificate chain (PEM); default: lockstepd makes its own")
        ->envname("LOCKSTEP_TLS_CERTIFICATE")
        ->type_name("FILE");
    app.add_option("--tls-key", settings.tls_key, "File of the certificate's key (PEM)")
        ->envname("LOCKSTEP_TLS_KEY")
        ->type_name("FILE");
}

void declare_slurm(CLI::App& app, DaemonSettings& settings) {
    app.add_option(
           "--slurmrestd-url", settings.slurmrestd_url,
           "Where slurmrestd listens: http://host:port, https://host:port or unix:/path; it "
           "must take rest_auth/jwt")
        ->envname("LOCKSTEP_SLURMRESTD_URL")
        ->type_name("URL");
    app.add_option(
           "--slurmrestd-fingerprint", settings.slurmrestd_fingerprint,
           "SHA-256 of the certificate that slurmrestd, or what is in front of it, must show; "
           "default: one that an authority trusted by the system has signed")
        ->envname("LOCKSTEP_SLURMRESTD_FINGERPRINT")
        ->type_name("HASH");
    app.add_option("--slurm-identity", settings.slurm_identity,
                   "Unix user of jobs with --scheduler slurm: self, lockstepd's own user for all; "
                   "lockstep-exec, the user who signed the job, through that program")
        ->envname("LOCKSTEP_SLURM_IDENTITY")
        ->check(CLI::IsMember({"self", "lockstep-exec"}));
    app.add_option("--exec-socket", settings.exec_socket,
                   "Where lockstep-exec listens, with --slurm-identity lockstep-exec")
        ->envname("LOCKSTEP_EXEC_SOCKET")
        ->type_name("FILE");
    app.add_option(
           "--slurm-bin-dir", settings.slurm_bin_dir,
           "Where sbatch, squeue and the others are, and srun on the nodes; default: found on "
           "PATH. SLURM_CONF of lockstepd's environment is passed on to them, nothing else "
           "of it")
        ->envname("LOCKSTEP_SLURM_BIN_DIR")
        ->type_name("DIR");
    app.add_option("--slurm-poll-seconds", settings.slurm_poll_seconds,
                   "Shortest interval between two queries of the queue while a change is expected")
        ->envname("LOCKSTEP_SLURM_POLL_SECONDS")
        ->check(CLI::Range(0.5, 3600.0));
    app.add_option(
           "--slurm-quarantine-seconds", settings.slurm_quarantine_seconds,
           "How long to search Slurm for a submission of unknown outcome before repeating it; "
           "0: the credential's lifetime (munge: 300) and 60 more")
        ->envname("LOCKSTEP_SLURM_QUARANTINE_SECONDS")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--on-external-cancel", settings.on_external_cancel,
                   "What to do with a job that disappeared from Slurm while lockstepd was not "
                   "running and, without slurmdbd, may have been cancelled by a person or lost by "
                   "Slurm: resubmit or fail")
        ->envname("LOCKSTEP_ON_EXTERNAL_CANCEL")
        ->check(CLI::IsMember({"resubmit", "fail"}));
    app.add_option("--on-slurm-node-fail", settings.on_slurm_node_fail,
                   "What to do with healthy ranks on a node that Slurm reports as failed, e.g. "
                   "because its slurmd died: keep (they continue, with a warning: Slurm may give "
                   "the node to others) or end")
        ->envname("LOCKSTEP_ON_SLURM_NODE_FAIL")
        ->check(CLI::IsMember({"keep", "end"}));
    app.add_option("--slurm-leave-seconds", settings.slurm_leave_seconds,
                   "How long an attempt's job may stay in Slurm after its end in Lockstep; then it "
                   "is cancelled")
        ->envname("LOCKSTEP_SLURM_LEAVE_SECONDS")
        ->check(CLI::Range(1, 86'400));
    app.add_option("--slurm-submit-rate", settings.slurm_submit_rate,
                   "Most submissions to Slurm per second")
        ->envname("LOCKSTEP_SLURM_SUBMIT_RATE")
        ->check(CLI::Range(0.01, 1000.0));
    app.add_option(
           "--slurm-queue", settings.slurm_queue,
           "Jobs that may be in Slurm's queue at a time; the others wait in Lockstep, their "
           "users in turn. A user with less than a sixteenth of it there may go beyond it. "
           "Jobs that are held or begin later do not count, up to as many a user")
        ->envname("LOCKSTEP_SLURM_QUEUE")
        ->check(CLI::Range(1, 100'000));
    app.add_flag("--slurm-gres", settings.slurm_gres,
                 "Ask for GPUs with --gres=gpu:N, as Slurms without --gpus-per-node want it")
        ->envname("LOCKSTEP_SLURM_GRES");
}

void declare_metrics(CLI::App& app, DaemonSettings& settings) {
    app.add_option("--metrics-max-series-per-job", settings.metrics_max_series_per_job,
                   "Most series of one job's ranks in /metrics; what is cut is counted in "
                   "lockstep_exposition_suppressed_series")
        ->envname("LOCKSTEP_METRICS_MAX_SERIES_PER_JOB")
        ->check(CLI::Range(0, 100'000'000));
    app.add_flag("--metrics-auth", settings.metrics_auth,
                 "/metrics of the daemon itself needs a token as well; without this any local user "
                 "may read it, and of jobs only what the caller's token may see")
        ->envname("LOCKSTEP_METRICS_AUTH");
    app.add_option("--remote-write", settings.remote_write,
                   "URL of a Prometheus remote-write receiver, for example "
                   "http://127.0.0.1:9090/api/v1/write: it is sent the series of jobs, ranks and "
                   "GPUs that /metrics shows; default: none")
        ->envname("LOCKSTEP_REMOTE_WRITE")
        ->type_name("URL");
    app.add_option("--remote-write-token-file", settings.remote_write_token_file,
                   "File of the bearer token for it; read before every request")
        ->envname("LOCKSTEP_REMOTE_WRITE_TOKEN_FILE")
        ->type_name("FILE");
    app.add_option("--remote-write-user", settings.remote_write_user,
                   "User for it, instead of a token (HTTP basic authentication)")
        ->envname("LOCKSTEP_REMOTE_WRITE_USER")
        ->type_name("USER");
    app.add_option("--remote-write-password-file", settings.remote_write_password_file,
                   "File of that user's password; read before every request")
        ->envname("LOCKSTEP_REMOTE_WRITE_PASSWORD_FILE")
        ->type_name("FILE");
    app.add_option("--remote-write-interval", settings.remote_write_interval,
                   "Seconds from one collection to the next")
        ->envname("LOCKSTEP_REMOTE_WRITE_INTERVAL")
        ->check(CLI::Range(0.1, 3600.0));
    app.add_option("--remote-write-timeout", settings.remote_write_timeout,
                   "Seconds that the receiver may take to answer one request")
        ->envname("LOCKSTEP_REMOTE_WRITE_TIMEOUT")
        ->check(CLI::Range(0.1, 600.0));
}

void declare_users(CLI::App& app, DaemonSettings& settings) {
    app.add_flag(
           "--shared-account", settings.shared_account,
           "Other users may have tokens and submit jobs, although all jobs run as lockstepd's "
           "own user (with the schedulers local and slurm) and each can do what that user "
           "can; without this they may not")
        ->envname("LOCKSTEP_SHARED_ACCOUNT");
    app.add_option("--user-jobs", settings.user_jobs,
                   "Unfinished jobs that one user may have; one more is answered with 429. 0: as "
                   "many as all have together")
        ->envname("LOCKSTEP_USER_JOBS")
        ->check(CLI::Range(0, 100'000));
    app.add_option("--user-submissions", settings.user_submissions,
                   "Jobs that one user may submit a minute, and as many at once; a job of a sweep "
                   "counts as one, and a larger sweep is made up for before the next job. Beyond "
                   "it: 429 with Retry-After. 0: any number")
        ->envname("LOCKSTEP_USER_SUBMISSIONS")
        ->check(CLI::Range(0, 10'000'000));
    app.add_option("--user-gb", settings.user_gb,
                   "GB (10^9 bytes) that one user's jobs may take, over or not: their "
                   "specifications, counted at once, and their folders below --runs-dir, measured "
                   "every hour, once a day after they are over. Who has as much submits no more "
                   "(429) until jobs are removed; "
                   "admins do. 0: any")
        ->envname("LOCKSTEP_USER_GB")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
}

void declare_notices(CLI::App& app, DaemonSettings& settings) {
    app.add_option("--notify-hosts", settings.notify_hosts,
                   "Hosts that webhooks of jobs may be sent to, with commas; *.example.org: every "
                   "one below it. any: all but addresses of lockstepd's own machine (loopback, "
                   "link-local), as found right before connecting; none: webhooks are refused")
        ->envname("LOCKSTEP_NOTIFY_HOSTS")
        ->type_name("HOSTS");
    app.add_option("--sendmail", settings.sendmail,
                   "Program that takes the mails of jobs as sendmail -i -- ADDRESS does; default: "
                   "/usr/sbin/sendmail if it is there; none: mail is refused")
        ->envname("LOCKSTEP_SENDMAIL")
        ->type_name("PROGRAM");
}

void declare_retention(CLI::App& app, DaemonSettings& settings) {
    app.add_option("--history-mb", settings.history_mb,
                   "MiB that telemetry may take on disk; beyond it the oldest goes, that of jobs "
                   "that are over first")
        ->envname("LOCKSTEP_HISTORY_MB")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
    app.add_option("--history-days", settings.history_days,
                   "Telemetry older than this is removed; 0: only its size counts")
        ->envname("LOCKSTEP_HISTORY_DAYS")
        ->check(CLI::Range(0, 36'500));
    app.add_option(
           "--keep-days", settings.keep_days,
           "Jobs that have been over for so many days are removed with their logs, telemetry "
           "and the checkpoints below --runs-dir, unless they have a label named keep; 0: "
           "never")
        ->envname("LOCKSTEP_KEEP_DAYS")
        ->check(CLI::Range(0, 36'500));
    app.add_option(
           "--keep-gb", settings.keep_gb,
           "GB (10^9 bytes) that jobs that are over may take below --runs-dir; beyond it the "
           "oldest of the user who has most are removed as by --keep-days, but for those of the "
           "last day; 0: any")
        ->envname("LOCKSTEP_KEEP_GB")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
}

void declare_copies(CLI::App& app, DaemonSettings& settings) {
    auto* take_over =
        app.add_flag("--take-over", settings.take_over,
                     "For one start on a data directory that is a copy: the lockstepd it was "
                     "copied from is gone for good, and this one goes on in its place")
            ->configurable(false);
    app.add_flag("--as-copy", settings.as_copy,
                 "For one start on a data directory that is a copy: the lockstepd it was copied "
                 "from goes on; its unfinished jobs end here and stay untouched there")
        ->configurable(false)
        ->excludes(take_over);
}

void declare_commands(CLI::App& app, DaemonSettings& settings) {
    app.require_subcommand(0, 1);
    auto* backup = app.add_subcommand(
        "backup",
        "Copy the store and the runs into a new folder, beside a lockstepd that runs or "
        "not. The options above say where they are");
    backup->fallthrough();
    backup->add_option("FOLDER", settings.backup_folder, "The new folder")->required();
    backup
        ->add_option("--runs", settings.backup_runs,
                     "Files of the runs directory that are copied: all but checkpoints and "
                     "snapshots (logs), all, or none. All of them are listed")
        ->check(CLI::IsMember({"logs", "all", "none"}));
    backup->add_flag("--with-secrets", settings.backup_secrets,
                     "Copy the first token, the key of lockstepd's own certificate, users' "
                     "secrets and Slurm tokens, and what they have signed as well");
    backup->add_flag("--verify", settings.backup_verify,
                     "Make none: read every byte of the one that is in FOLDER");
    backup->callback([&settings] { settings.command = "backup"; });
    auto* restore = app.add_subcommand(
        "restore",
        "Make the new data directory --data-dir of a backup. Jobs that were not over "
        "end in it, unless it takes over");
    restore->fallthrough();
    restore->add_option("FOLDER", settings.backup_folder, "The backup")->required();
    restore->add_flag("--take-over", settings.restore_take_over,
                      "The lockstepd that was backed up is gone for good: follow the jobs that "
                      "its scheduler had");
    restore->callback([&settings] { settings.command = "restore"; });
}

}  // namespace

namespace {

// CLI11 asks the environment only for what the file left open; here the environment goes before the
// file.
class BelowEnvironment final : public CLI::ConfigINI {
  public:
    explicit BelowEnvironment(const CLI::App& app) : app_(app) {}
    std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
        std::vector<CLI::ConfigItem> found = CLI::ConfigINI::from_config(input);
        std::erase_if(found, [this](const CLI::ConfigItem& item) {
            const CLI::Option* option =
                item.parents.empty() ? app_.get_option_no_throw("--" + item.name) : nullptr;
            // An empty one is none, as for CLI11: LOCKSTEP_LISTEN=${LISTEN} of a compose file.
            const char* value = option != nullptr && !option->get_envname().empty()
                                    ? std::getenv(option->get_envname().c_str())
                                    : nullptr;
            return value != nullptr && *value != '\0';
        });
        return found;
    }

  private:
    const CLI::App& app_;
};

}  // namespace

void declare(CLI::App& app, DaemonSettings& settings) {
    app.description(
        "Lockstep's coordinator: takes training jobs over HTTP and keeps their ranks in step");
    app.set_version_flag("--version", std::string{kVersion});
    app.set_config("--config", "", "Read settings from this file (key = value)")->type_name("FILE");
    app.allow_config_extras(false);
    app.config_formatter(std::make_shared<BelowEnvironment>(app));
    app.option_defaults()->always_capture_default();
    declare_listeners(app, settings);
    declare_copies(app, settings);
    app.add_option("--data-dir", settings.data_dir,
                   "Where the event log, the first token and runs are kept; default: "
                   "$XDG_DATA_HOME/lockstep, else ~/.local/share/lockstep")
        ->envname("LOCKSTEP_DATA_DIR")
        ->type_name("DIR");
    app.add_flag("--any-data-dir", settings.any_data_dir,
                 "Accept a data directory that belongs to another user or that others may write "
                 "to: everyone who may write there is trusted like this user")
        ->envname("LOCKSTEP_ANY_DATA_DIR");
    app.add_option("--runs-dir", settings.runs_dir,
                   "Attempts, logs and checkpoints; default: <data-dir>/runs")
        ->envname("LOCKSTEP_RUNS_DIR")
        ->type_name("DIR");
    app.add_option("--agent-path", settings.agent_path,
                   "Path of lockstep-agent; default: beside lockstepd")
        ->envname("LOCKSTEP_AGENT_PATH")
        ->type_name("FILE");
    app.add_option("--web-root", settings.web_root,
                   "Serve the web page from this folder (index.html, assets/) instead of the one "
                   "that was built in: for work on the page")
        ->envname("LOCKSTEP_WEB_ROOT")
        ->type_name("DIR")
        ->check(CLI::ExistingDirectory);
    app.add_option("--grafana-url", settings.grafana_url,
                   "Address of a Grafana with the dashboards of deploy/grafana, as browsers reach "
                   "it: jobs, ranks and GPUs on the page get a link to it; default: none")
        ->envname("LOCKSTEP_GRAFANA_URL")
        ->type_name("URL")
        ->check(web_address);
    app.add_option("--scheduler", settings.scheduler,
                   "Where jobs run: on this machine; in Slurm, as lockstepd's own user; in Slurm, "
                   "each as its own user, with the user's own Slurm token (lockstep slurm-token)")
        ->envname("LOCKSTEP_SCHEDULER")
        ->check(CLI::IsMember({"local", "slurm", "slurmrestd"}));
    declare_slurm(app, settings);
    declare_users(app, settings);
    declare_retention(app, settings);
    app.add_option("--allowed-host", settings.allowed_hosts,
                   "A further name that the Host header may carry; may be repeated")
        ->envname("LOCKSTEP_ALLOWED_HOST")
        ->type_name("NAME");
    declare_metrics(app, settings);
    declare_notices(app, settings);
    app.add_option("--log-level", settings.log_level, "Least level that is logged")
        ->envname("LOCKSTEP_LOG_LEVEL")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
    app.add_option("--local-cores", settings.local_cores,
                   "Cores the local scheduler hands out; 0: those of this machine")
        ->envname("LOCKSTEP_LOCAL_CORES")
        ->check(CLI::Range(0, 4096));
    app.add_option("--local-memory-mb", settings.local_memory_mb,
                   "MiB of memory the local scheduler hands out; 0: those of this machine")
        ->envname("LOCKSTEP_LOCAL_MEMORY_MB")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--local-gpus", settings.local_gpus,
                   "GPUs the local scheduler hands out, each to one job at a time; -1: those of "
                   "this machine, or of lockstepd's own CUDA_VISIBLE_DEVICES (MIG devices too)")
        ->envname("LOCKSTEP_LOCAL_GPUS")
        ->check(CLI::Range(-1, 1024));
    app.name("lockstepd");
    app.add_flag("--print-manual", settings.print_manual, "Print lockstepd(8)")->group("");
    app.add_option("--print-completion", settings.print_completion, "Print completions")->group("");
    declare_commands(app, settings);
    cli::dress_help(app, cli::terminal_columns());
}

std::string wrong_with_file(const CLI::App& app, const CLI::ParseError& error) {
    const CLI::Option* option = app.get_config_ptr();
    if (option == nullptr || option->count() == 0) {
        return "";
    }
    const std::string path = option->results().back();
    if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
        // CLI11 asks "missing?" whatever the reason is.
        const UniqueFd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
        return file ? path + ": is no file" : errno_error("open " + path, errno).message;
    }
    constexpr std::string_view kUnknown = "INI was not able to parse ";
    std::string item = error.what();
    if (dynamic_cast<const CLI::ConfigError*>(&error) == nullptr || !item.starts_with(kUnknown)) {
        return "";
    }
    item.erase(0, kUnknown.size());
    if (constexpr std::string_view kSection = ".++"; item.ends_with(kSection)) {
        item.resize(item.size() - kSection.size());
        return path + ": [" + item + "]: there are no sections, only lines: name = value";
    }
    return path + ": " + item + ": unknown setting; each line is: name = value, with a name of " +
           "lockstepd --help";
}

std::string manual(const CLI::App& app) {
    cli::ManualText text;
    text.section = 8;
    text.title = "coordinator of Lockstep training jobs";
    text.description = {
        "lockstepd takes training jobs over HTTP, starts an agent per node, brings the ranks "
        "together and keeps what they report. A job that was answered with 201 is on disk: the "
        "daemon may be killed at any moment, training goes on, and the next start takes the jobs "
        "up again.",
        "Loopback is served over plain HTTP, any other address over TLS only, with the certificate "
        "of --tls-certificate or one that lockstepd makes at its first start. Agents pin that "
        "certificate; its fingerprint is logged and kept in the data directory, for lockstep(1) on "
        "other machines: LOCKSTEP_FINGERPRINT.",
        "The first start writes an administrator's token to the data directory.",
        "SIGHUP reads a renewed certificate; connections that are open stay. On a terminal it "
        "means that the terminal has gone, and ends lockstepd.",
        "A data directory may be renamed, and its disk be put into another machine. A copy of it "
        "is noticed and refused until --take-over or --as-copy says what it is to be; lockstepd "
        "backup makes copies beside a lockstepd that runs, lockstepd restore puts them to use."};
    text.files = {{"<data-dir>/token", "the first token, mode 0600"},
                  {"<data-dir>/url", "where the API listens"},
                  {"<data-dir>/fingerprint", "of the TLS certificate: sha256:…"},
                  {"<data-dir>/tls/", "lockstepd's own certificate and its key, mode 0600"},
                  {"<data-dir>/lockstepd.sock", "Unix socket for the same user on this machine"},
                  {"<data-dir>/audit.log", "who changed what, and refused tokens, as JSON lines"},
                  {"<data-dir>/lockstep.db", "event log, fold, telemetry (SQLite, WAL)"},
                  {"<data-dir>/runs/<job>/a<k>/", "files and rank logs of an attempt"},
                  {"<data-dir>/runs/<job>/checkpoints/", "checkpoints, unless the job says where"}};
    text.exits = {{"0", "was asked to stop (SIGTERM, SIGINT); agents and ranks go on"},
                  {"1", "could not start"},
                  {"2", "a setting is unknown or wrong"},
                  {"70", "the store can no longer be trusted; restart to recover"}};
    text.examples = {{"lockstepd --listen 127.0.0.1:8470", "serve this machine"},
                     {"lockstepd --remote-write https://metrics.example/api/v1/push "
                      "--remote-write-token-file /etc/lockstep/push.token",
                      "send the series of jobs, ranks and GPUs to Mimir"},
                     {"lockstepd --scheduler slurm --listen 10.0.0.1:8470",
                      "serve people and agents of the network, over TLS"},
                     {"lockstepd backup /backup/lockstep-$(date +%F)",
                      "copy the store, logs and results while it runs"},
                     {"lockstepd restore /backup/lockstep-2026-11-25 --data-dir /srv/lockstep",
                      "inspect that day's jobs, beside the running lockstepd"}};
    text.see_also = {"lockstep(1)", "lockstep-agent(1)", "lockstep-job(5)"};
    return cli::man_page(app, text, kVersion, "2026-11-21");
}

std::string completion(const CLI::App& app, const std::string& shell) {
    const auto known = cli::parse_shell(shell);
    return known ? cli::completion(app, *known, "") : "";
}

}  // namespace lockstep
