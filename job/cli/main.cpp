// lockstep: the command line. Reads the arguments, finds the daemon, runs one verb.
#include "job/base/check.hpp"
#include "job/base/version.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/login.hpp"
#include "job/cli/manual.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <iostream>
#include <string_view>
#include <thread>

namespace lockstep::cli {
namespace {

// What the signal handler writes: only what is async-signal-safe may happen there, so the text is
// made beforehand.
std::array<char, 256> farewell{};
volatile std::sig_atomic_t farewell_size = 0;

extern "C" void on_interrupt(int /*signal*/) {
    const auto size = static_cast<std::size_t>(farewell_size);
    if (::write(STDERR_FILENO, farewell.data(), size) < 0) {
        // Nobody reads; there is nobody left to tell.
    }
    ::_exit(static_cast<int>(Exit::interrupted));
}

void set_farewell(const std::string& id) {
    const std::string text = id.empty() ? "\n"
                                        : "\ninterrupted; the job goes on: lockstep follow " + id +
                                              "\nto end it: lockstep cancel " + id + "\n";
    farewell_size = 0;
    const std::size_t size = std::min(text.size(), farewell.size());
    std::copy_n(text.begin(), size, farewell.begin());
    farewell_size = static_cast<std::sig_atomic_t>(size);
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
        return app.exit(error);  // --help, --version
    }
    std::cerr << "error: " << error.what() << "\nlockstep --help shows what there is.\n";
    return static_cast<int>(Exit::usage);
}

Exit without_daemon(const CLI::App& app, const Options& options, const std::string& verb) {
    if (verb == "manual") {
        std::cout << man_page(app, manual_text(), kVersion, "2026-11-21");
        return Exit::ok;
    }
    const auto shell = parse_shell(options.shell);
    LOCKSTEP_CHECK(shell.has_value());  // the option takes only these words
    std::cout << completion(app, *shell, "lockstep jobs --quiet 2>/dev/null");
    return Exit::ok;
}

Exit with_daemon(const Options& options, const std::string& verb) {
    const auto access = find_access(options);
    if (!access) {
        std::cerr << "error: " << access.error().message << "\n";
        return Exit::usage;
    }
    const auto client = Client::connect(*access);
    if (!client) {
        std::cerr << "error: " << client.error().message << "\n";
        return Exit::usage;
    }
    const Terminal terminal = Terminal::detect();
    const SystemClock clock;
    Context context{options,
                    terminal,
                    *client,
                    clock,
                    [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); },
                    std::cout,
                    std::cerr,
                    set_farewell};
    return run_verb(context, verb);
}

int run(int argc, char** argv) {
    Options options;
    CLI::App app;
    declare(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return usage_error(app, error);
    }
    const std::string verb = app.get_subcommands().front()->get_name();
    set_farewell("");
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
    std::signal(SIGPIPE, SIG_DFL);
    if (verb == "login") {
        return static_cast<int>(log_in(options, terminal_dialog(std::cerr), std::cout, std::cerr));
    }
    const bool local = verb == "manual" || verb == "completion";
    const Exit end = local ? without_daemon(app, options, verb) : with_daemon(options, verb);
    return static_cast<int>(end);
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
    return lockstep::cli::run(argc, argv);
}
