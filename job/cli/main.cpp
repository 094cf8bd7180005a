// lockstep: the command line. Reads the arguments, finds the daemon, runs one verb.
#include "job/base/check.hpp"
#include "job/base/version.hpp"
#include "job/cli/arguments.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/daemon_start.hpp"
#include "job/cli/explain.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/interrupt.hpp"
#include "job/cli/login.hpp"
#include "job/cli/manual.hpp"
#include "job/cli/output.hpp"
#include "job/cli/run.hpp"
#include "job/cli/typed.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <iostream>
#include <string_view>

namespace lockstep::cli {
namespace {

// What the signal handler writes: only what is async-signal-safe may happen there, so the text is
// made beforehand.
std::array<char, 4096> farewell{};  // a handler may not allocate
std::string lockstep_again = "lockstep";
volatile std::sig_atomic_t farewell_size = 0;

extern "C" void on_interrupt(int /*signal*/) {
    const auto size = static_cast<std::size_t>(farewell_size);
    if (::write(STDERR_FILENO, farewell.data(), size) < 0) {
        // Output is closed; there is no way to report the error.
    }
    ::_exit(static_cast<int>(Exit::interrupted));
}

volatile std::sig_atomic_t resized = 0;

// Ends a sleep early, so that a view is drawn again at its new size.
extern "C" void on_window_change(int /*signal*/) {
    resized = 1;
}

void sleep_or_resize(Terminal& terminal, std::chrono::milliseconds time) {
    const timespec span{static_cast<std::time_t>(time.count() / 1000),
                        static_cast<long>(time.count() % 1000) * 1'000'000};
    ::nanosleep(&span, nullptr);
    if (resized != 0) {
        resized = 0;
        terminal.measure();
    }
}

void set_farewell(const std::string& id) {
    const std::string text = id.empty() ? "\n"
                                        : "\ninterrupted; the job goes on: " + lockstep_again +
                                              " follow " + id + "\nto end it: " + lockstep_again +
                                              " cancel " + id + "\n";
    farewell_size = 0;
    const std::size_t size = std::min(text.size(), farewell.size());
    std::copy_n(text.begin(), size, farewell.begin());
    farewell_size = static_cast<std::sig_atomic_t>(size);
}

int usage_error(const CLI::App& app, const CLI::ParseError& error,
                const std::vector<std::string>& words) {
    if (error.get_exit_code() == 0) {
        return app.exit(error);  // --help, --version
    }
    std::string what = unknown_verb(app, words);
    what = what.empty() ? unknown_option(app, words) : what;
    const auto chosen = app.get_subcommands();
    std::cerr << "error: " << one_line(what.empty() ? error.what() : what) << "\nlockstep "
              << (chosen.empty() ? "" : chosen.front()->get_name() + " ")
              << "--help shows what there is.\n";
    return static_cast<int>(Exit::usage);
}

// Ends the job, or all of the sweep that it is of, from the thread of the interrupts.
Result<Json> cancelled(const Access& access, const std::string& id, bool whole_sweep) {
    const auto client = Client::connect(access);
    LOCKSTEP_TRY(client);
    if (!whole_sweep) {
        return client->post_json("/v1/jobs/" + id + "/cancel", "");
    }
    const auto job = client->get_json("/v1/jobs/" + id);
    return job ? client->post_json("/v1/sweeps/" + text_at(at(*job, "sweep"), "id") + "/cancel", "")
               : job;
}

bool cancel_now(const Access& access, const std::string& id, bool whole_sweep) {
    const auto answer = cancelled(access, id, whole_sweep);
    if (!answer) {
        std::cerr << "error: " << one_line(answer.error().message) << "\n";
    }
    return answer.has_value();
}

Exit without_daemon(const CLI::App& app, const Options& options, const std::string& verb) {
    if (verb == "manual") {
        constexpr const char* kWritten = "2026-11-23";
        std::cout << (options.page == "job" ? job_man_page(kVersion, kWritten)
                                            : man_page(app, manual_text(), kVersion, kWritten));
        return Exit::ok;
    }
    if (verb == "explain") {
        if (options.json) {
            const auto json = explain_json(options.field);
            (json ? std::cout : std::cerr)
                << (json ? json->dump(2) : "error: " + json.error().message) << "\n";
            return json ? Exit::ok : Exit::not_found;
        }
        const auto lines = explain_field(Terminal::detect(), options.field);
        if (!lines) {
            std::cerr << "error: " << lines.error().message << "\n";
            return Exit::not_found;
        }
        for (const std::string& line : *lines) {
            std::cout << line << "\n";
        }
        return Exit::ok;
    }
    const auto shell = parse_shell(options.shell);
    LOCKSTEP_CHECK(shell.has_value());  // the option takes only these words
    std::cout << completion(app, *shell, "lockstep jobs --quiet 2>/dev/null");
    return Exit::ok;
}

// A view that goes on for as long as the job does would not notice that nobody gets it.
void end_without_output(const OutputBuffer& output) {
    if (output.error() != 0) {
        ::_exit(static_cast<int>(end_of_output(output, Exit::ok, std::cerr)));
    }
}

Exit with_daemon(const Options& options, const std::string& verb, const OutputBuffer& output) {
    if (verb == "run" && !options.run.dry_run) {
        // What can be told to be wrong at once does not start a daemon first.
        const auto caller = caller_of(options.run);
        const auto plan =
            caller ? plan_run(options.run, *caller) : Result<RunPlan>{fail(caller.error())};
        const Status there = plan ? ensure_daemon(options, std::cerr) : fail(plan.error());
        if (!there) {
            std::cerr << "error: " << one_line(there.error().message) << "\n";
            return exit_code(there.error().code);
        }
    }
    const auto access = find_access(options);
    if (!access) {
        std::cerr << "error: " << access.error().message << "\n";
        return exit_code(access.error().code);
    }
    const auto client = Client::connect(*access);
    if (!client) {
        std::cerr << "error: " << client.error().message << "\n";
        return Exit::usage;
    }
    Terminal terminal = Terminal::detect();
    const SystemClock clock;
    lockstep_again = same_lockstep(options);
    Context context{options,
                    terminal,
                    *client,
                    clock,
                    [&terminal, &output](std::chrono::milliseconds time) {
                        end_without_output(output);
                        sleep_or_resize(terminal, time);
                    },
                    std::cout,
                    std::cerr,
                    set_farewell};
    if (verb == "run") {
        const bool sweep = !options.run.sweep.empty();
        Stop stop;
        Interrupts interrupts{
            [&access, sweep](const std::string& id) { return cancel_now(*access, id, sweep); },
            same_lockstep(options), sweep ? "cancel --sweep" : "cancel", &stop};
        context.stop = &stop;
        context.watching = [&interrupts](const std::string& id) { interrupts.watching(id); };
        context.sleep = [&interrupts, sleep = context.sleep](std::chrono::milliseconds time) {
            interrupts.while_idle([&sleep, time] { sleep(time); });
        };
        return run_verb(context, verb);
    }
    return run_verb(context, verb);
}

int run(int argc, char** argv, const OutputBuffer& output) {
    Options options;
    CLI::App app;
    declare(app, options);
    const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
    if (const std::string foreign = not_utf8(given); !foreign.empty()) {
        std::cerr << "error: " << one_line(foreign) << "\n";
        return static_cast<int>(Exit::usage);
    }
    const auto words = prepared_arguments(app, given);
    try {
        app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11: the last first
    } catch (const CLI::ParseError& error) {
        return usage_error(app, error, words);
    }
    options.general = general_words(app, words);
    const std::string verb = app.get_subcommands().front()->get_name();
    set_farewell("");
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
    std::signal(SIGWINCH, on_window_change);
    if (verb == "login") {
        return static_cast<int>(log_in(options, terminal_dialog(std::cerr), std::cout, std::cerr));
    }
    const bool local = verb == "manual" || verb == "completion" || verb == "explain";
    const Exit end =
        local ? without_daemon(app, options, verb) : with_daemon(options, verb, output);
    return static_cast<int>(end);
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
    using namespace lockstep::cli;
    hold_standard_descriptors();
    std::signal(SIGPIPE, SIG_DFL);
    OutputBuffer output{STDOUT_FILENO};
    std::streambuf* const before = std::cout.rdbuf(&output);
    const auto end = static_cast<Exit>(run(argc, argv, output));
    std::cout.flush();
    std::cout.rdbuf(before);
    return static_cast<int>(end_of_output(output, end, std::cerr));
}
