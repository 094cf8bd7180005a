#include "job/agent/agent.hpp"

#include "job/agent/claim.hpp"
#include "job/agent/keeper.hpp"
#include "job/agent/own_log.hpp"
#include "job/agent/ranks/last_words.hpp"
#include "job/agent/ranks/spawn.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/model/launch/rank_env.hpp"

#include <signal.h>
#include <unistd.h>

#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kStepDaemonLook = std::chrono::seconds{1};

std::map<std::string, std::string> own_environment() {
    std::map<std::string, std::string> out;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text{*entry};
        const auto equals = text.find('=');
        if (equals != std::string_view::npos && equals > 0) {
            out.emplace(text.substr(0, equals), text.substr(equals + 1));
        }
    }
    return out;
}

// This program's file; "" if the kernel does not say.
std::filesystem::path own_program() {
    std::error_code ec;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
    return ec ? std::filesystem::path{} : self;
}

NodeConfig configure(const AgentOptions& options, const wire::AttemptFile& file) {
    NodeConfig config;
    config.attempt_directory = options.attempt_directory;
    config.node_rank = options.node_rank;
    config.nodes = file.nodes;
    config.name = options.node_name.empty() ? host_name() : options.node_name;
    config.incarnation = random_secret().substr(0, 32);
    config.allocation = options.allocation;
    config.signed_document = options.signed_document;
    config.signed_point = options.signed_point;
    const auto program = own_program();
    const auto folder = program.parent_path();
    config.agent_program = program.string();
    config.train_program = options.train_program.empty() ? (folder / "lockstep-train").string()
                                                         : options.train_program;
    config.gpu_test_program = options.gpu_test_program.empty()
                                  ? (folder / "lockstep-gpu-test").string()
                                  : options.gpu_test_program;
    config.nccl_test_program = options.nccl_test_program.empty()
                                   ? (folder / "lockstep-nccl-test").string()
                                   : options.nccl_test_program;
    const auto python = folder.parent_path() / kPythonFolder;
    std::error_code ec;
    if (std::filesystem::is_directory(python, ec)) {
        config.python_path = python.string();
    }
    if (const auto hooks = python / kPythonHooksModule; !std::filesystem::exists(hooks, ec)) {
        config.missing_hooks = hooks.string();
    }
    config.own_libraries = folder.parent_path() / "lib/lockstep";
    config.inherited = own_environment();
    config.ticket = file.ticket;
    config.preflight_root = options.preflight_root;
    config.timing = options.ranks;
    return config;
}

Result<wire::AttemptFile> read_attempt_file(const std::filesystem::path& directory) {
    const auto text = read_file(directory / wire::kAttemptFileName, limits::kAttemptFileBytes);
    LOCKSTEP_TRY(text);
    return wire::decode_attempt_file(*text);
}

// Until the agent has its exit code: cancelling the wait does not reach a signal that has come but
// was not yet taken, and to wait for another one after that would be for ever.
Task<void> obey_signals(net::signal_set& signals, const std::optional<int>& code, Node& node) {
    while (!code) {
        ErrorCode ec;
        const int number = co_await signals.async_wait(into(ec));
        if (ec) {
            co_return;
        }
        if (number == SIGURG) {  // what the batch script asks Slurm for, before the time limit
            node.warn_ranks();
            continue;
        }
        log::info("told to end", {{"signal", number}});
        node.shut_down(limits::kStopGrace, number == SIGTERM ? "it was told to end (SIGTERM)"
                                                             : "it was told to end (SIGINT)");
    }
}

// Slurm's daemon of our step is our parent, or our keeper's. Without it nobody ends us with the
// job, Slurm may not even notice, and the node may be given to others: the ranks are ended, and
// lockstepd hears why.
Task<void> watch_step_daemon(net::steady_timer& timer, const std::optional<int>& code, Node& node,
                             bool kept) {
    const pid_t above = kept ? ::getppid() : ::getpid();
    const auto parent = parent_process(above);
    const auto name = read_file("/proc/" + std::to_string(parent) + "/comm", 64);
    if (!name || *name != "slurmstepd\n") {
        co_return;
    }
    while (!code && parent_process(above) == parent) {
        co_await sleep_on(timer, kStepDaemonLook);
    }
    if (!code) {
        log::error("slurmstepd is gone");
        node.shut_down(limits::kStopGrace, "slurmstepd, Slurm's daemon of its step, is gone");
    }
}

int run_once(const AgentOptions& given, bool again) {
    const OwnLog own_log{STDERR_FILENO};
    AgentOptions options = given;
    std::error_code ec;
    options.attempt_directory = std::filesystem::absolute(given.attempt_directory, ec);
    const auto file = read_attempt_file(options.attempt_directory);
    if (!file) {
        log::error("no attempt", {{"why", file.error().message}});
        return kAgentFailed;
    }
    if (options.node_rank < 0 || options.node_rank >= file->nodes) {
        log::error("no such node in the attempt",
                   {{"node", options.node_rank}, {"nodes", file->nodes}});
        return kAgentFailed;
    }
    NodeConfig config = configure(options, *file);
    wire::ClaimFile content;
    content.pid = ::getpid();
    content.incarnation = config.incarnation;
    content.node = config.name;
    content.allocation = config.allocation;
    const auto claim = Claim::take(options.attempt_directory, options.node_rank, content, again);
    // Nobody hears of it otherwise than as an exit code.
    const auto refuse = [&](const std::string& why) {
        log::error("not starting", {{"why", why}});
        const wire::GaveUpFile words{config.incarnation, config.name, "it could not start: " + why};
        leave_last_words(options.attempt_directory, options.node_rank, words);
        return kAgentFailed;
    };
    if (!claim && claim.error().code == Errc::conflict) {
        log::error("not starting", {{"why", claim.error().message}});
        return kAgentClaimed;  // the other agent speaks for the node
    }
    if (!claim) {
        return refuse(claim.error().message);
    }
    auto sockets = SocketDirectory::create();
    if (!sockets) {
        return refuse(sockets.error().message);
    }
    ::signal(SIGPIPE, SIG_IGN);
    if (options.start_limits) {
        assume_start_limits(*options.start_limits);
    }
    raise_open_files();  // a rank costs four or more

    options.session.first_connect = first_connect_delay(options.node_rank, file->nodes);
    net::io_context io{1};
    TaskGroup tasks{io};
    Node node{tasks, std::move(config), std::move(*sockets)};
    Session session{tasks, node, options.attempt_directory / wire::kAttemptFileName,
                    options.session};
    net::signal_set signals{io, SIGTERM, SIGINT, SIGURG};
    std::optional<int> code;
    net::steady_timer step_timer{io};
    node.on_wake([&session] { session.wake(); });
    node.on_finished([&](int result) {
        code = result;
        session.stop();
        signals.cancel();
        step_timer.cancel();
    });
    node.start();
    const bool kept = options.restarts > 0;
    tasks.spawn("step daemon", watch_step_daemon(step_timer, code, node, kept));
    tasks.spawn("signals", obey_signals(signals, code, node));
    tasks.spawn("session", session.run());
    io.run();
    log::info("agent ends", {{"exit_code", code.value_or(kAgentFailed)}});
    return code.value_or(kAgentFailed);
}

}  // namespace

int run_agent(const AgentOptions& options) {
    const auto once = [&options](bool again) { return run_once(options, again); };
    return options.restarts > 0 ? keep_agent(options.restarts, once) : once(false);
}

}  // namespace lockstep
