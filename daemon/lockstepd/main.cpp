// lockstepd: settings, wiring, signals, exit. Order of the shutdown: listeners, control (jobs and
// agents go on without us), scheduler, store. Exit codes: 0 asked to stop, 1 could not start,
// 2 bad settings, 70 the store cannot be trusted (restart recovers).
#include "daemon/control/control_service.hpp"
#include "daemon/http/routes.hpp"
#include "daemon/http/server.hpp"
#include "daemon/lockstepd/data_directory.hpp"
#include "daemon/lockstepd/settings.hpp"
#include "job/async/sleep.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"
#include "scheduler-integration/local/local_scheduler.hpp"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace lockstep {
namespace {

constexpr int kCannotStart = 1;
constexpr int kBadSettings = 2;
constexpr int kStoreBroken = 70;  // EX_SOFTWARE

struct HostPort {
    std::string host;
    std::uint16_t port = 0;
};

// "127.0.0.1:8470", "[::1]:8470". Only loopback: beyond it TLS would be needed.
Result<HostPort> parse_listen(const std::string& text) {
    const auto colon = text.rfind(':');
    const auto port = colon == std::string::npos ? std::nullopt : to_int(text.substr(colon + 1));
    if (!port || *port < 0 || *port > 65'535) {
        return fail(Errc::invalid, text + ": must be address:port");
    }
    HostPort out{text.substr(0, colon), static_cast<std::uint16_t>(*port)};
    if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']') {
        out.host = out.host.substr(1, out.host.size() - 2);
    }
    ErrorCode ec;
    const auto address =
        net::ip::make_address(out.host == "localhost" ? "127.0.0.1" : out.host, ec);
    if (ec) {
        return fail(Errc::invalid, text + ": must be an IP address and a port");
    }
    if (!address.is_loopback()) {
        return fail(Errc::invalid, text +
                                       ": only loopback addresses are served; beyond them TLS "
                                       "is needed, which is not available yet");
    }
    out.host = address.to_string();
    return out;
}

std::string url_of(const tcp::endpoint& endpoint) {
    const std::string host = endpoint.address().is_v6() ? "[" + endpoint.address().to_string() + "]"
                                                        : endpoint.address().to_string();
    return "http://" + host + ":" + std::to_string(endpoint.port());
}

std::filesystem::path beside_this_program(const char* name) {
    std::error_code ec;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
    return self.parent_path() / name;
}

// As many descriptors as the system lets us have: one per agent and client.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

class Daemon {
  public:
    Daemon(DaemonSettings settings, DataDirectory data, std::unique_ptr<Database> database)
        : settings_(std::move(settings)), data_(std::move(data)) {
        for (const TokenRow& token : database->tokens().value_or(std::vector<TokenRow>{})) {
            tokens_[token.sha256] = token;
        }
        Store::Hooks hooks;
        hooks.on_fatal = [this](const Error&) { finish(kStoreBroken); };
        hooks.on_commit = [this](std::chrono::nanoseconds took, std::size_t) {
            metrics_.fsync_duration.Observe(std::chrono::duration<double>(took).count());
        };
        store_ = std::make_unique<Store>(io_, std::move(database), std::move(hooks));
    }

    int run() {
        signals_.add(SIGTERM);
        signals_.add(SIGINT);
        tasks_.spawn("signals", wait_for_signal());
        tasks_.spawn("start", start());
        tasks_.spawn("loop-lag", measure_lag());
        io_.run();
        return exit_code_;
    }

  private:
    Status make_scheduler() {
        LocalScheduler::Options options;
        options.agent_program = settings_.agent_path.empty()
                                    ? beside_this_program("lockstep-agent").string()
                                    : settings_.agent_path;
        if (::access(options.agent_program.c_str(), X_OK) != 0) {
            return fail(errno_error("lockstep-agent at " + options.agent_program, errno));
        }
        Machine machine = read_machine();
        if (settings_.local_cores > 0) {
            machine.cores = settings_.local_cores;
        }
        if (settings_.local_memory_mb > 0) {
            machine.memory_mb = settings_.local_memory_mb;
        }
        if (settings_.local_gpus >= 0) {
            machine.gpus = settings_.local_gpus;
        }
        options.capacity = machine;
        scheduler_ = std::make_unique<LocalScheduler>(io_, std::move(options));
        return {};
    }

    Task<void> start() {
        const Status started = co_await start_parts();
        if (!started) {
            log::error("cannot start", {{"what", started.error().message}});
            finish(started.error().code == Errc::invalid ? kBadSettings : kCannotStart);
        }
    }

    Task<Status> start_parts() {
        if (const Status made = make_scheduler(); !made) {
            co_return made;
        }
        ControlSettings control;
        control.runs_dir = settings_.runs_dir.empty()
                               ? data_.path() / "runs"
                               : std::filesystem::absolute(settings_.runs_dir);
        control.daemon_id = random_secret().substr(0, 16);
        context_ = std::make_unique<ControlContext>(io_, clock_, *store_, *scheduler_, metrics_,
                                                    std::move(control));
        control_ = std::make_unique<ControlService>(*context_);
        scheduler_->on_change(
            [this](const JobId& job, std::int32_t) { control_->scheduler_changed(job); });
        if (const Status loaded = co_await control_->load_jobs(); !loaded) {
            co_return loaded;
        }
        if (finishing_) {
            co_return Status{};  // asked to stop while the jobs were loading
        }
        add_routes(router_, RouteContext{io_, *control_, metrics_});
        HttpSettings http;
        http.allowed_hosts = settings_.allowed_hosts;
        http.metrics_open = !settings_.metrics_auth;
        auto authenticate = [this](const std::string& hash) { return principal(hash); };
        server_ = std::make_unique<HttpServer>(io_, router_, authenticate, &control_->agents(),
                                               metrics_, std::move(http));
        const auto api = listen(settings_.listen, Surface::all);
        if (!api) {
            co_return fail(api.error());
        }
        std::string agent_url = url_of(*api);
        if (!settings_.agent_listen.empty()) {
            const auto agents = listen(settings_.agent_listen, Surface::agents);
            if (!agents) {
                co_return fail(agents.error());
            }
            agent_url = url_of(*agents);
        }
        if (!settings_.metrics_listen.empty()) {
            if (const auto extra = listen(settings_.metrics_listen, Surface::metrics); !extra) {
                co_return fail(extra.error());
            }
        }
        control_->begin(agent_url);
        if (const Status written = data_.write_url(url_of(*api)); !written) {
            co_return written;
        }
        log::info(
            "lockstepd is up",
            {{"version", kVersion}, {"url", url_of(*api)}, {"data_dir", data_.path().string()}});
        ::malloc_trim(0);  // what start-up needed and a daemon at rest does not
        co_return Status{};
    }

    Result<tcp::endpoint> listen(const std::string& text, Surface surface) {
        const auto where = parse_listen(text);
        if (!where) {
            return fail(where.error());
        }
        return server_->listen(where->host, where->port, surface);
    }

    std::optional<Principal> principal(const std::string& hash) const {
        const auto found = tokens_.find(hash);
        if (found == tokens_.end() ||
            (found->second.expires_at != 0 && found->second.expires_at <= clock_.wall())) {
            return std::nullopt;
        }
        Principal out;
        out.user = found->second.user;
        out.role = found->second.role == "admin"  ? Role::admin
                   : found->second.role == "user" ? Role::user
                                                  : Role::viewer;
        return out;
    }

    Task<void> wait_for_signal() {
        ErrorCode ec;
        const int number = co_await signals_.async_wait(into(ec));
        if (!ec) {
            log::info("stopping", {{"signal", number}});
            finish(0);
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
        tasks_.spawn("shutdown", shut_down());
    }

    Task<void> shut_down() {
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
        lag_timer_.cancel();
        signals_.cancel();
    }

    DaemonSettings settings_;
    DataDirectory data_;
    SystemClock clock_;
    net::io_context io_{1};
    net::signal_set signals_{io_};
    net::steady_timer lag_timer_{io_};
    TaskGroup tasks_{io_};
    telemetry::DaemonMetrics metrics_;
    std::unordered_map<std::string, TokenRow> tokens_;  // by hash
    std::unique_ptr<Store> store_;
    std::unique_ptr<LocalScheduler> scheduler_;
    std::unique_ptr<ControlContext> context_;
    std::unique_ptr<ControlService> control_;
    Router router_;
    std::unique_ptr<HttpServer> server_;
    bool finishing_ = false;
    int exit_code_ = 0;
};

int start(const DaemonSettings& settings) {
    log::Level level = log::Level::info;
    log::parse_level(settings.log_level, level);
    log::start("lockstepd", level, std::getenv("JOURNAL_STREAM") != nullptr);
    for (const std::string& listen :
         {settings.listen, settings.agent_listen, settings.metrics_listen}) {
        if (listen.empty()) {
            continue;
        }
        if (const auto good = parse_listen(listen); !good) {
            log::error("bad setting", {{"what", good.error().message}});
            return kBadSettings;
        }
    }
    ::umask(077);
    // A peer that hangs up and a file that may not grow are errors of the call, not ends of the
    // daemon.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    raise_descriptor_limit();
    auto data = DataDirectory::open(settings.data_dir.empty()
                                        ? default_data_directory()
                                        : std::filesystem::absolute(settings.data_dir));
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
    if (auto token = data->ensure_token(**database, user_name(), clock.wall()); !token) {
        log::error("cannot make the first token", {{"what", token.error().message}});
        return kCannotStart;
    }
    Daemon daemon{settings, std::move(*data), std::move(*database)};
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
    return lockstep::start(settings);
}
