// lockstep-agent: one per node of an attempt (`run`), and the shell's way to the agent of a rank
// (`report`, `kv`). `exec` is what the agent starts its ranks through.
#include "job/agent/agent.hpp"
#include "job/agent/manual.hpp"
#include "job/agent/rank_commands.hpp"
#include "job/agent/ranks/spawn.hpp"
#include "job/agent/ranks/task_shim.hpp"
#include "job/async/loose_thread.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/start_limits.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"
#include "job/cli/manual.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

constexpr int kWrongUse = 2;

struct Arguments {
    AgentOptions agent;
    std::string log_level = "info";
    std::vector<std::string> words;
    KeyCommand key;
    double timeout_seconds = 30;
};

void declare_run(CLI::App& app, Arguments& arguments) {
    auto* run = app.add_subcommand("run", "Be the agent of one node of an attempt");
    // srun starts the same command line on every node; Slurm says which one this is.
    const char* slurm = std::getenv("SLURM_NODEID");
    const auto node = slurm == nullptr ? std::nullopt : to_int(slurm);
    arguments.agent.node_rank = static_cast<std::int32_t>(node.value_or(0));
    if (const char* id = std::getenv("SLURM_JOB_ID"); id != nullptr && to_int(id)) {
        arguments.agent.allocation = id;
    }
    if (const char* name = std::getenv("SLURMD_NODENAME"); name != nullptr) {
        arguments.agent.node_name = name;
    }
    run->add_option("--attempt-dir", arguments.agent.attempt_directory,
                    "Directory of the attempt; holds agent.json")
        ->required();
    run->add_option("--node", arguments.agent.node_rank,
                    "Number of this node in the attempt (default: SLURM_NODEID, else 0)")
        ->check(CLI::NonNegativeNumber);
    run->add_option("--node-name", arguments.agent.node_name,
                    "Name of this node (default: SLURMD_NODENAME, else the host's name)");
    run->add_option("--train-program", arguments.agent.train_program,
                    "The native trainer (default: lockstep-train beside this program)");
    run->add_option("--gpu-test-program", arguments.agent.gpu_test_program,
                    "The test of GPUs (default: lockstep-gpu-test beside this program)");
    run->add_option("--nccl-test-program", arguments.agent.nccl_test_program,
                    "The test with NCCL (default: lockstep-nccl-test beside this program)");
    run->add_option_function<std::string>(
           "--signed",
           [&arguments](const std::string& text) {
               const auto slash = text.find('/');
               const auto point = to_int(text.substr(std::min(text.size(), slash + 1)));
               if (slash != 64 || !point || *point < 0) {
                   throw CLI::ValidationError("--signed", "must be <SHA-256>/<number>");
               }
               arguments.agent.signed_document = text.substr(0, slash);
               arguments.agent.signed_point = *point;
           },
           "Run nothing but what the job's user has signed: SHA-256 of the request's body, and "
           "which job of a sweep, as lockstep-exec says it")
        ->type_name("SHA256/N");
    run->add_option("--preflight-root", arguments.agent.preflight_root,
                    "Put in front of /proc, /sys and /dev by the pre-flight; for tests")
        ->group("");
    run->add_option_function<std::int64_t>(
           "--orphan-seconds",
           [&arguments](const std::int64_t& seconds) {
               arguments.agent.session.orphan = std::chrono::seconds{seconds};
           },
           "How long an agent without ranks waits for a daemon; for tests")
        ->check(CLI::NonNegativeNumber)
        ->group("");
    run->add_option_function<std::string>(
           "--start-limits",
           [&arguments](const std::string& text) {
               arguments.agent.start_limits = start_limits_from(text);
           },
           "What lockstepd was started with, for the ranks (local scheduler)")
        ->group("");
    run->add_option("--restarts", arguments.agent.restarts,
                    "How often the agent is started again when a signal ends it (default 0)")
        ->check(CLI::Range(0, 100));
    run->add_option("--log-level", arguments.log_level, "debug, info, warn or error")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

void declare_task(CLI::App& app, Arguments& arguments) {
    auto* task = app.add_subcommand("task", "Be one rank that srun has started (launch task)");
    task->add_option("--attempt-dir", arguments.agent.attempt_directory, "Directory of the attempt")
        ->required();
}

void declare_report(CLI::App& app, Arguments& arguments) {
    auto* report = app.add_subcommand("report", "Report values of this rank: loss=0.5 step=3");
    report->add_option("values", arguments.words, "name=number, e.g. step=3 loss=0.5")->required();
}

constexpr const char* kKeyHelp =
    "Exit codes: 0 done; 1 refused: no such key, another value stands, too large;\n"
    "2 wrong use; 3 timed out; 4 no agent (LOCKSTEP_SOCKET). A VALUE of - is read\n"
    "from stdin; words that begin with - go after --. A value has at most 1 MiB.";

void declare_kv(CLI::App& app, Arguments& arguments) {
    auto* kv = app.add_subcommand("kv", "Keys shared by the ranks of this generation");
    kv->require_subcommand(1);
    kv->footer(kKeyHelp);
    KeyCommand& key = arguments.key;
    const auto verb = [&](const char* name, const char* help) {
        auto* sub = kv->add_subcommand(name, help);
        sub->callback([&key, name] { key.op = wire::kv_op_of(name); });
        sub->footer(kKeyHelp);
        return sub;
    };
    const auto seconds = CLI::Range(0.0, static_cast<double>(limits::kKeyWaitMs) / 1000);
    auto* set = verb("set", "Set a key");
    set->add_option("key", key.key, "The key")->required();
    set->add_option("value", key.value, "Its value, or - for stdin")->required();
    set->add_flag("--once", key.once, "The value may never become another one");
    auto* get = verb("get", "Print the value of a key");
    get->add_option("key", key.key, "The key")->required();
    get->add_option("--wait", arguments.timeout_seconds, "Seconds to wait for the key (default 0)")
        ->check(seconds)
        ->each([&key](const std::string&) { key.waits = true; });
    auto* add = verb("add", "Add to a counter and print it");
    add->add_option("key", key.key, "The counter")->required();
    add->add_option("delta", key.delta, "How much (default 1)");
    auto* cas = verb("cas", "Set a key if it has the expected value; prints the one it has then");
    cas->add_option("key", key.key, "The key")->required();
    cas->add_option("expected", key.expected, "What it must be; '' = there is no such key")
        ->required();
    cas->add_option("value", key.value, "Its new value, or - for stdin")->required();
    auto* erase = verb("delete", "Delete a key");
    erase->add_option("key", key.key, "The key")->required();
    auto* wait = verb("wait", "Wait until every key exists");
    wait->add_option("keys", key.keys, "The keys")->required();
    auto* barrier = verb("barrier", "Wait until every rank is here");
    barrier->add_option("name", key.key, "Name of the barrier")->required();
    for (auto* sub : {wait, barrier}) {
        sub->add_option("--timeout", arguments.timeout_seconds, "Seconds (default 30)")
            ->check(seconds);
    }
}

int run_main(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{"The agent of a Lockstep job on one node"};
    app.name("lockstep-agent");
    app.set_version_flag("--version", std::string{kVersion});
    app.require_subcommand(1);
    declare_run(app, arguments);
    declare_task(app, arguments);
    declare_report(app, arguments);
    declare_kv(app, arguments);
    app.add_subcommand("manual", "Print lockstep-agent(1)")
        ->group("");  // for the build; not listed
    cli::dress_help(app, cli::terminal_columns());
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const int code = app.exit(error);
        return code == 0 ? 0 : kWrongUse;
    }
    if (app.got_subcommand("manual")) {
        std::cout << agent_manual(app);
        return 0;
    }
    if (app.got_subcommand("task")) {
        return run_task(arguments.agent.attempt_directory);
    }
    if (app.got_subcommand("report")) {
        return send_report(arguments.words);
    }
    if (app.got_subcommand("kv")) {
        arguments.key.timeout =
            std::chrono::milliseconds{static_cast<std::int64_t>(arguments.timeout_seconds * 1000)};
        return run_key_command(arguments.key);
    }
    log::Level level = log::Level::info;
    log::parse_level(arguments.log_level, level);
    log::start("lockstep-agent", level, false);
    const int code = run_agent(arguments.agent);
    if (LooseThread::abandoned() > 0) {
        std::_Exit(code);  // they may still use whatever an orderly end would take down
    }
    return code;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    // First and without anything else: this stands between a rank's start and its own program.
    if (argc >= 2 && std::string_view{argv[1]} == "exec") {
        return lockstep::run_exec_shim(argc - 2, argv + 2);
    }
    return lockstep::run_main(argc, argv);
}
