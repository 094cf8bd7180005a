// size: the order in which everything is created, and destroyed, in one place
// lockstepd: settings, wiring, signals, exit. Order of the shutdown: listeners, control (jobs and
// agents go on without us), scheduler, store. Exit codes: 0 asked to stop, 1 could not start,
// 2 bad settings, 70 the store cannot be trusted (restart recovers).
#include "daemon/control/control_service.hpp"
#include "daemon/control/disk_watch.hpp"
#include "daemon/http/auth/page_sessions.hpp"
#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/http/server/server.hpp"
#include "daemon/lockstepd/built_in_page.hpp"
#include "daemon/lockstepd/copies.hpp"
#include "daemon/lockstepd/data_directory.hpp"
#include "daemon/lockstepd/listeners.hpp"
#include "daemon/lockstepd/make_scheduler.hpp"
#include "daemon/lockstepd/remote_write.hpp"
#include "daemon/lockstepd/service_manager.hpp"
#include "daemon/lockstepd/settings.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/identity_records.hpp"
#include "daemon/store/token_records.hpp"
#include "daemon/telemetry/exposition/expiry_metrics.hpp"
#include "job/async/loose_thread.hpp"
#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/start_limits.hpp"
#include "job/base/version.hpp"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr int kCannotStart = 1;
constexpr int kBadSettings = 2;
constexpr int kStoreBroken = 70;  // EX_SOFTWARE

class Daemon {
  public:
    Daemon(DaemonSettings settings, DataDirectory data, std::unique_ptr<Database> database,
           CopiedJobs copied)
        : settings_(std::move(settings)), data_(std::move(data)), copied_(std::move(copied)) {
        auto tokens = TokenRecords{*database}.all().value_or(std::vector<TokenRow>{});
        Store::Hooks hooks;
        hooks.on_fatal = [this](const Error&) { finish(kStoreBroken); };
        hooks.on_commit = [this](std::chrono::nanoseconds took, std::size_t) {
            metrics_.fsync_duration.Observe(std::chrono::duration<double>(took).count());
        };
        store_ = std::make_unique<Store>(io_, std::move(database), std::move(hooks));
        tokens_ = std::make_unique<TokenTable>(*store_, clock_, tasks_, tokens);
        sessions_ = std::make_unique<PageSessions>(*store_, clock_, *tokens_, std::move(tokens));
    }

    int run() {
        signals_.add(SIGTERM);
        signals_.add(SIGINT);
        tasks_.spawn("signals", wait_for_signal());
        // On a terminal it is the terminal that goes, and lockstepd with it.
        if (::isatty(STDERR_FILENO) == 0) {
            hangups_.add(SIGHUP);
            tasks_.spawn("hangups", read_certificate_anew());
        }
        tasks_.spawn("start", start());
        tasks_.spawn("loop-lag", measure_lag());
        io_.run();
        return exit_code_;
    }

  private:
    Task<void> start() {
        const Status started = co_await start_parts();
        if (!started) {
            log::error("cannot start", {{"what", started.error().message}});
            finish(started.error().code == Errc::invalid ? kBadSettings : kCannotStart);
        }
    }

    Task<Status> start_parts() {
        auto made = make_scheduler(io_, clock_, settings_, slurm_metrics_, data_.path());
        LOCKSTEP_CO_TRY(made);
        scheduler_ = std::move(*made);
        const Status begun = co_await scheduler_->begin();
        LOCKSTEP_CO_TRY(begun);
        ControlSettings control;
        control.runs_dir = runs_directory_of(settings_, data_.path());
        control.copied = std::move(copied_);
        control.daemon_id = random_secret().substr(0, 16);
        control.history_mb = settings_.history_mb;
        control.history_days = settings_.history_days;
        control.keep_days = settings_.keep_days;
        control.keep_bytes = settings_.keep_gb * 1'000'000'000;
        control.user_bytes = settings_.user_gb * 1'000'000'000;
        control.snapshots_dir = std::filesystem::absolute(data_.path() / "snapshots");
        control.max_series_per_job = static_cast<std::size_t>(settings_.metrics_max_series_per_job);
        control.doubtful_ends_recover = settings_.on_external_cancel == "resubmit";
        control.keep_on_node_fail = settings_.on_slurm_node_fail == "keep";
        control.of_user = {static_cast<std::size_t>(settings_.user_jobs),
                           static_cast<std::size_t>(settings_.user_submissions)};
        if (scheduler_->identities() == nullptr && scheduler_->signatures() == nullptr) {
            control.account = {user_name(), settings_.shared_account};
        }
        tokens_->restrict_to(control.account);
        tell_account(control.account);
        const JobsAccount account = control.account;
        auto notify = plan_notify(settings_.notify_hosts, settings_.sendmail);
        LOCKSTEP_CO_TRY(notify);
        control.notify = std::move(*notify);
        if (settings_.scheduler != "local") {
            control.window = static_cast<std::size_t>(settings_.slurm_queue);
        }
        context_ = std::make_unique<ControlContext>(io_, clock_, *store_, *scheduler_, metrics_,
                                                    std::move(control));
        secrets_.load();
        context_->secrets = &secrets_;
        control_ = std::make_unique<ControlService>(*context_);
        scheduler_->on_change(
            [this](const JobId& job, std::int32_t) { control_->scheduler_changed(job); });
        if (const Status loaded = co_await control_->load_jobs(); !loaded) {
            co_return loaded;
        }
        if (finishing_) {
            co_return Status{};  // asked to stop while the jobs were loading
        }
        scheduler_->know_ends([this](JobId job, std::int32_t attempt) {
            return control_->end_of(std::move(job), attempt);
        });
        RouteContext routes{io_, *control_, metrics_, *tokens_, scheduler_->identities()};
        routes.account = account;
        routes.secrets = &secrets_;
        routes.sessions = sessions_.get();
        routes.signatures = scheduler_->signatures();
        routes.page = std::make_shared<const WebPage>(
            built_in_page(), settings_.web_root.empty()
                                 ? std::filesystem::path{}
                                 : std::filesystem::absolute(settings_.web_root));
        routes.grafana_url = settings_.grafana_url;
        add_routes(router_, routes);
        HttpSettings http;
        http.allowed_hosts = own_names(settings_);
        http.metrics_open = !settings_.metrics_auth;
        auto authenticate = [this](const std::string& hash) { return tokens_->authenticate(hash); };
        audit_ =
            std::make_unique<AuditLog>(data_.path() / "audit.log", clock_,
                                       [this](std::size_t lines) { metrics_.audit_lost(lines); });
        http.audit = audit_.get();
        http.by_cookie = [this](const std::string& hash) { return sessions_->authenticate(hash); };
        http.why_refused = [this](const std::string& hash, bool cookie) {
            return cookie ? sessions_->why_refused(hash) : tokens_->why_refused(hash);
        };
        http.whose = [this](const std::string& hash, bool cookie) {
            return cookie ? sessions_->whose(hash) : tokens_->whose(hash);
        };
        http.token_user = [this](const std::string& id) { return tokens_->user_of(id); };
        server_ = std::make_unique<HttpServer>(io_, router_, authenticate, &control_->agents(),
                                               metrics_, std::move(http));
        if (const Status open = open_listeners(); !open) {
            co_return open;
        }
        ::malloc_trim(0);  // what start-up needed and a daemon at rest does not
        disk_ = std::make_unique<DiskWatch>(
            io_, disk_metrics_,
            std::vector<std::filesystem::path>{data_.path(), context_->settings.runs_dir});
        tasks_.spawn("disk", disk_->watch());
        tasks_.spawn("runs", context_->runs_folder.watch({}));
        co_return Status{};
    }

    void tell_account(const JobsAccount& account) const {
        if (account.is_shared()) {
            log::warn(
                "the jobs of all users run as one Unix user, with all its rights over each other",
                {{"account", account.name}});
        }
        for (const std::string& user : tokens_->shut_out()) {
            log::warn(
                "a user has tokens that cannot submit: all jobs run as lockstepd's user; "
                "--shared-account allows it",
                {{"user", user}, {"account", account.name}});
        }
    }

    Status open_listeners() {
        const auto plan = plan_listeners(settings_);
        LOCKSTEP_TRY(plan);
        TlsSetup tls;
        if (plan->tls()) {
            auto made = set_up_tls(settings_, *plan, data_.path(), clock_.wall());
            LOCKSTEP_TRY(made);
            tls = std::move(*made);
            expiry_metrics_.certificate(tls.not_after);
        }
        const auto listen = [&](const ListenAddress& where, Surface surface) {
            return server_->listen(where.host, where.port, surface,
                                   where.tls ? tls.context : nullptr);
        };
        const auto api = listen(plan->api, Surface::all);
        LOCKSTEP_TRY(api);
        const ListenAddress& for_agents = plan->agents ? *plan->agents : plan->api;
        const auto agents = plan->agents ? listen(for_agents, Surface::agents) : api;
        LOCKSTEP_TRY(agents);
        if (plan->metrics) {
            LOCKSTEP_TRY(listen(*plan->metrics, Surface::metrics));
        }
        const std::string agent_url = settings_.agent_url.empty()
                                          ? url_for_others(*agents, for_agents.tls)
                                          : settings_.agent_url;
        const Status near = server_->listen_unix(data_.socket());
        if (!near) {
            // Some file systems have none; the port is there.
            log::warn("no Unix socket: programs on this machine use the port",
                      {{"what", near.error().message}});
            std::error_code ignored;
            std::filesystem::remove(data_.socket(), ignored);
        }
        AgentsListener& found = agents_listener_;
        found = {agent_url, for_agents.tls ? tls.fingerprint : "", ""};
        if (near && settings_.scheduler == "local" && settings_.agent_url.empty() &&
            !plan->agents && !for_agents.tls) {
            // A port of the loopback would be anybody's once this daemon is gone.
            found.socket = data_.socket().string();
        }
        control_->begin(found, url_for_others(*api, plan->api.tls));
        if (const Status sent = begin_remote_write(api->port()); !sent) {
            return sent;
        }
        const std::string url = url_for_us(*api, plan->api.tls);
        if (const Status written = data_.write_url(url); !written) {
            return written;
        }
        manager_.tell("READY=1\nSTATUS=serving " + url);
        log::info("lockstepd is up", {{"version", kVersion},
                                      {"url", url},
                                      {"agents", agent_url},
                                      {"data_dir", data_.path().string()}});
        return {};
    }

    Status begin_remote_write(std::uint16_t port) {
        auto plan = plan_remote_write(settings_);
        LOCKSTEP_TRY(plan);
        if (*plan) {
            (*plan)->instance = host_name() + ":" + std::to_string(port);
            remote_ =
                std::make_unique<telemetry::RemoteWriter>(std::move(**plan), clock_, metrics_);
            tasks_.spawn("remote-write", collect_series());
        }
        return {};
    }

    Task<void> collect_series() {
        const std::chrono::milliseconds interval{
            static_cast<std::int64_t>(settings_.remote_write_interval * 1000)};
        while (!finishing_) {
            remote_->push(control_->samples(), clock_.wall());
            co_await sleep_on(remote_timer_, interval);
        }
    }

    Task<void> wait_for_signal() {
        ErrorCode ec;
        const int number = co_await signals_.async_wait(into(ec));
        if (!ec) {
            log::info("stopping", {{"signal", number}});
            finish(0);
        }
    }

    // SIGHUP: the certificate has been renewed. One that is no good changes nothing.
    Task<void> read_certificate_anew() {
        ErrorCode ec;
        for (;;) {
            co_await hangups_.async_wait(into(ec));
            if (ec || finishing_) {
                break;
            }
            const auto plan = plan_listeners(settings_);
            if (!server_ || !plan || !plan->tls()) {
                log::info("SIGHUP: there is no certificate to read");
                continue;
            }
            const auto made = set_up_tls(settings_, *plan, data_.path(), clock_.wall());
            if (!made) {
                log::error("SIGHUP: the certificate stays what it was",
                           {{"what", made.error().message}});
                continue;
            }
            server_->show(made->context);
            expiry_metrics_.certificate(made->not_after);
            if (!agents_listener_.fingerprint.empty()) {
                agents_listener_.fingerprint = made->fingerprint;
                co_await control_->serve_agents_as(agents_listener_);
            }
            log::info("SIGHUP: the certificate has been read",
                      {{"fingerprint", made->fingerprint}});
        }
    }

    // How late a timer of this thread fires is how long everybody else waits for it.
    Task<void> measure_lag() {
        constexpr auto kPeriod = std::chrono::milliseconds{500};
        while (!finishing_) {
            const auto due = std::chrono::steady_clock::now() + kPeriod;
            const bool slept = co_await sleep_on(lag_timer_, kPeriod);
            if (!slept) {
                break;
            }
            slurm_metrics_.refresh();
            if (due >= tokens_due_) {
                constexpr auto kTokensEvery = std::chrono::seconds{10};
                tokens_due_ = due + kTokensEvery;
                expiry_metrics_.tokens(tokens_->first_ends());
            }
            manager_.alive(std::chrono::steady_clock::now());
            metrics_.event_loop_lag.Observe(
                std::chrono::duration<double>(std::chrono::steady_clock::now() - due).count());
        }
    }

    void finish(int code) {
        if (finishing_) {
            return;
        }
        finishing_ = true;
        exit_code_ = code;
        manager_.tell("STOPPING=1");
        tasks_.spawn("shutdown", shut_down());
    }

    Task<void> shut_down() {
        if (remote_) {
            remote_timer_.cancel();
            remote_->push(control_->samples(), clock_.wall());
            remote_->stop(std::chrono::seconds{2});  // beside what follows
        }
        data_.forget_url();
        if (server_) {
            co_await server_->stop(std::chrono::seconds{2});
        }
        if (control_) {
            co_await control_->stop();
        }
        if (scheduler_) {
            co_await scheduler_->stop();
        }
        store_->stop();
        if (disk_) {
            disk_->halt();
            context_->runs_folder.halt();
        }
        lag_timer_.cancel();
        signals_.cancel();
        hangups_.cancel();
    }

    ServiceManager manager_;
    DaemonSettings settings_;
    DataDirectory data_;
    CopiedJobs copied_;
    SystemClock clock_;
    net::io_context io_{1};
    net::signal_set signals_{io_};
    net::signal_set hangups_{io_};
    AgentsListener agents_listener_{};  // as open_listeners() found it
    net::steady_timer lag_timer_{io_};
    TaskGroup tasks_{io_};
    telemetry::DaemonMetrics metrics_;
    telemetry::DiskMetrics disk_metrics_{metrics_.registry(), {"data", "runs"}};
    telemetry::ExpiryMetrics expiry_metrics_{metrics_.registry()};
    std::chrono::steady_clock::time_point tokens_due_{};
    std::unique_ptr<DiskWatch> disk_;
    SlurmMetrics slurm_metrics_{metrics_};
    std::unique_ptr<Store> store_;
    std::unique_ptr<TokenTable> tokens_;
    std::unique_ptr<PageSessions> sessions_;
    SecretStore secrets_{data_.path() / "secrets"};
    std::unique_ptr<Scheduler> scheduler_;
    std::unique_ptr<ControlContext> context_;
    std::unique_ptr<ControlService> control_;
    Router router_;
    std::unique_ptr<AuditLog> audit_;
    std::unique_ptr<HttpServer> server_;
    net::steady_timer remote_timer_{io_};
    std::unique_ptr<telemetry::RemoteWriter> remote_;
    bool finishing_ = false;
    int exit_code_ = 0;
};

int start(const DaemonSettings& settings) {
    log::Level level = log::Level::info;
    log::parse_level(settings.log_level, level);
    log::start("lockstepd", level, std::getenv("JOURNAL_STREAM") != nullptr);
    if (const auto good = plan_listeners(settings); !good) {
        log::error("bad setting", {{"what", good.error().message}});
        return kBadSettings;
    }
    if (const auto good = plan_scheduler(settings); !good) {
        log::error("bad setting", {{"what", good.error().message}});
        return kBadSettings;
    }
    if (const auto good = plan_remote_write(settings); !good) {
        log::error("bad setting", {{"what", good.error().message}});
        return kBadSettings;
    }
    if (const auto good = plan_notify(settings.notify_hosts, settings.sendmail); !good) {
        log::error("bad setting", {{"what", good.error().message}});
        return kBadSettings;
    }
    narrow_umask();
    // A peer that hangs up and a file that may not grow are errors of the call, not ends of the
    // daemon.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    raise_open_files();  // one per agent and client
    auto data = DataDirectory::open(data_directory_of(settings), settings.any_data_dir);
    if (!data) {
        log::error("cannot use the data directory", {{"what", data.error().message}});
        return kCannotStart;
    }
    auto database = Database::open(data->database());
    if (!database) {
        log::error("cannot open the store", {{"what", database.error().message}});
        return kCannotStart;
    }
    const SystemClock clock;
    if (const Status ours = settle_copy(**database, *data, settings, clock.wall()); !ours) {
        log::error("cannot use the data directory", {{"what", ours.error().message}});
        return kCannotStart;
    }
    auto copied = IdentityRecords{**database}.copied_jobs();
    if (!copied) {
        log::error("cannot open the store", {{"what", copied.error().message}});
        return kCannotStart;
    }
    const UnixMillis forgotten =
        clock.wall() - std::chrono::milliseconds{limits::kTokensRemembered}.count();
    auto token = TokenRecords{**database}.remove_ended(forgotten);
    if (token) {
        token = data->ensure_token(**database, user_name(), clock.wall());
    }
    if (!token) {
        log::error("cannot make the first token", {{"what", token.error().message}});
        return kCannotStart;
    }
    Daemon daemon{settings, std::move(*data), std::move(*database), std::move(*copied)};
    return daemon.run();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    CLI::App app;
    lockstep::DaemonSettings settings;
    lockstep::declare(app, settings);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (const std::string wrong = lockstep::wrong_with_file(app, error); !wrong.empty()) {
            std::cerr << "lockstepd: " << wrong << "\n";
            return lockstep::kBadSettings;
        }
        const int code = app.exit(error);
        return code == 0 ? 0 : lockstep::kBadSettings;
    }
    if (settings.print_manual) {
        std::cout << lockstep::manual(app);
        return 0;
    }
    if (!settings.print_completion.empty()) {
        const std::string script = lockstep::completion(app, settings.print_completion);
        std::cout << script;
        return script.empty() ? lockstep::kBadSettings : 0;
    }
    if (const std::string path = lockstep::relative_to_nothing(settings); !path.empty()) {
        std::cerr << "lockstepd: " << path
                  << " is relative, and the directory that lockstepd was started in is not there "
                     "any more\n";
        return lockstep::kBadSettings;
    }
    if (!settings.command.empty()) {
        return lockstep::run_command(settings);
    }
    const int code = lockstep::start(settings);
    if (lockstep::LooseThread::abandoned() > 0) {
        std::_Exit(code);  // they may still use whatever an orderly end would take down
    }
    return code;
}
