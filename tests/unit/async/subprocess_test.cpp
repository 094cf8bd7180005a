#include "job/async/subprocess.hpp"

#include "job/async/sleep.hpp"
#include "job/base/start_limits.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

class Subprocess : public testing::Test {
  protected:
    static ProcessCommand shell(const std::string& script) {
        ProcessCommand command;
        command.argv = {"/bin/sh", "-c", script};
        command.environment = {"PATH=/usr/bin:/bin"};
        return command;
    }
    Result<ProcessResult> run(ProcessCommand command) {
        std::optional<Result<ProcessResult>> out;
        auto body = [&]() -> Task<void> {
            ProcessCommand copy = command;
            out = co_await runner_.run(std::move(copy));
        };
        net::co_spawn(io_, body(), net::detached);
        io_.restart();
        io_.run();
        return std::move(*out);
    }
    net::io_context io_{1};
    ProcessRunner runner_{io_};
};

TEST_F(Subprocess, GivesOutputErrorsAndTheExitStatus) {
    ProcessCommand command = shell("cat; echo oops >&2; exit 3");
    command.input = "hello";
    const auto result = run(command);
    ASSERT_TRUE(result.has_value()) << result.error().text();
    EXPECT_EQ(result->exit_status, 3);
    EXPECT_EQ(result->out, "hello");
    EXPECT_EQ(result->err, "oops\n");
    EXPECT_FALSE(result->timed_out);
    EXPECT_EQ(runner_.running(), 0U);
}

TEST_F(Subprocess, PassesOnTheGivenEnvironmentAndNothingElse) {
    ASSERT_EQ(::setenv("SBATCH_JOB_NAME", "forged", 1), 0);
    ProcessCommand command;
    command.argv = {"/usr/bin/env"};
    command.environment = {"ONLY=this"};
    EXPECT_EQ(run(command)->out, "ONLY=this\n");
    ::unsetenv("SBATCH_JOB_NAME");
}

TEST_F(Subprocess, ArgumentsAreNeverReadByAShell) {
    ProcessCommand command;
    command.argv = {"/bin/echo", "$(id) `id` ; id > /dev/null\n*"};
    EXPECT_EQ(run(command)->out, "$(id) `id` ; id > /dev/null\n*\n");
}

TEST_F(Subprocess, WhatCannotBeStartedIsAnErrorAndNotAResult) {
    ProcessCommand command;
    command.argv = {"/no/such/program"};
    const auto result = run(command);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, Errc::not_found);
    EXPECT_THAT(result.error().message, HasSubstr("/no/such/program"));
}

TEST_F(Subprocess, AtItsDeadlineItAndItsChildrenAreKilled) {
    ProcessCommand command = shell("sleep 1000 & echo $!; wait");
    Result<ProcessResult> result = fail(Errc::internal, "not run");
    // The shell must have begun by then.
    for (const int timeout : {300, 3'000, 20'000}) {
        command.timeout = std::chrono::milliseconds{timeout};
        result = run(command);
        ASSERT_TRUE(result.has_value());
        EXPECT_TRUE(result->timed_out);
        if (!result->out.empty()) {
            break;
        }
    }
    EXPECT_EQ(result->signal, SIGKILL);
    const pid_t child = std::stoi(result->out);
    // Killed with its group; init has it, so it may still be a zombie of somebody else's. A signal
    // that was sent is not yet a death.
    std::string line;
    const auto dead = [&] {
        std::ifstream stat{"/proc/" + std::to_string(child) + "/stat"};
        line.clear();
        std::getline(stat, line);
        return line.empty() || line.find(") Z") != std::string::npos ||
               line.find(") X") != std::string::npos;
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (!dead() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(dead()) << line;
}

// As in a driver that hangs, where no signal reaches it: this one has left its group, which is
// killed.
TEST_F(Subprocess, WhatItsKillDoesNotEndIsGivenUp) {
    ProcessCommand command;
    command.argv = {"/usr/bin/perl", "-e",
                    "$| = 1; setpgrp(0, getpgrp(getppid())); print \"$$\\n\"; sleep 1000;"};
    command.give_up = std::chrono::milliseconds{100};
    Result<ProcessResult> result = fail(Errc::internal, "not run");
    for (const int timeout : {300, 3'000, 20'000}) {
        command.timeout = std::chrono::milliseconds{timeout};
        result = run(command);
        ASSERT_TRUE(result.has_value());
        if (!result->out.empty()) {
            break;
        }
    }
    EXPECT_TRUE(result->timed_out);
    EXPECT_TRUE(result->abandoned);
    EXPECT_FALSE(result->signal || result->exit_status);
    EXPECT_EQ(runner_.running(), 0U);
    const pid_t left = std::stoi(result->out);
    EXPECT_EQ(::kill(left, SIGKILL), 0);
    EXPECT_EQ(::waitpid(left, nullptr, 0), left);
}

TEST_F(Subprocess, OutputIsBounded) {
    ProcessCommand command = shell("exec yes");
    command.output_bytes = 100'000;
    command.timeout = std::chrono::seconds{20};
    const auto result = run(command);
    ASSERT_TRUE(result.has_value());
    EXPECT_FALSE(result->timed_out);
    EXPECT_TRUE(result->overflowed);
    EXPECT_EQ(result->signal, SIGKILL);
    EXPECT_EQ(result->out.size(), 100'000U);
}

// Read after its end: what was cut off must not pass for all there was.
TEST_F(Subprocess, AProgramThatPrintsTooMuchAndEndsByItselfHasNotSucceeded) {
    ProcessCommand command = shell("printf '%060000d' 1; exit 0");
    command.output_bytes = 50'000;
    const auto result = run(command);
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->overflowed);
    EXPECT_FALSE(result->exit_status.has_value());
    EXPECT_EQ(result->out.size(), 50'000U);
}

TEST_F(Subprocess, ExcessIsDroppedWhereThatIsWanted) {
    ProcessCommand command = shell("head -c 3000000 /dev/zero; exit 4");
    command.output_bytes = 1000;
    command.drop_excess = true;
    const auto result = run(command);
    ASSERT_TRUE(result.has_value());
    EXPECT_FALSE(result->overflowed);
    EXPECT_EQ(result->exit_status, 4);
    EXPECT_EQ(result->out.size(), 1000U);
}

TEST_F(Subprocess, OutputOfSeveralMebibytesComesWhole) {
    ProcessCommand command =
        shell("head -c 9000000 /dev/zero; echo end; head -c 70000 /dev/zero >&2");
    const auto result = run(command);
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->exit_status, 0);
    EXPECT_EQ(result->out.size(), 9'000'004U);
    EXPECT_TRUE(result->out.ends_with("end\n"));
    EXPECT_EQ(result->err.size(), 70'000U);
}

// It is out of reach of the kill: neither may it hold up the answer.
TEST_F(Subprocess, WhatIsLeftInASessionOfItsOwnHoldsNothingUp) {
    const test::TemporaryFolder folder;
    const std::string left = (folder / "left").string();
    ProcessCommand command =
        shell("setsid sh -c 'echo $$ >&2; : > " + left +
              "; exec sleep 1000' & echo here; until [ -e " + left + " ]; do sleep 0.01; done");
    const auto begun = std::chrono::steady_clock::now();
    const auto result = run(command);
    ASSERT_TRUE(result.has_value());
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds{20});
    EXPECT_EQ(result->out, "here\n");
    ASSERT_FALSE(result->err.empty());
    ::kill(std::stoi(result->err), SIGKILL);
}

// sbatch hands its limits to every rank (PropagateResourceLimits): with one of our own a job could
// not write a file over 16 MiB.
TEST_F(Subprocess, AProgramHasTheLimitsAndTheUmaskThatThisProcessWasStartedWith) {
    const auto seen = [&] { return run(shell("cat /proc/self/limits; umask"))->out; };
    const std::string before = seen();
    rlimit files{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
    rlimit fewer = files;
    fewer.rlim_cur = 200;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &fewer), 0);
    const mode_t umask = ::umask(027);
    const std::string here = seen();
    EXPECT_NE(here, before);
    EXPECT_TRUE(here.ends_with("0027\n")) << here;
    raise_open_files();
    narrow_umask();
    rlimit raised{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &raised), 0);
    EXPECT_EQ(raised.rlim_cur, raised.rlim_max);
    EXPECT_EQ(seen(), here);
    assume_start_limits({});
    ::setrlimit(RLIMIT_NOFILE, &files);
    ::umask(umask);
    EXPECT_EQ(seen(), before);
}

TEST_F(Subprocess, KillAllEndsWhatRuns) {
    net::steady_timer soon{io_};
    auto kill = [&]() -> Task<void> {
        while (runner_.running() == 0) {
            co_await sleep_on(soon, std::chrono::milliseconds{1});
        }
        runner_.kill_all();
    };
    net::co_spawn(io_, kill(), net::detached);
    const auto result = run(shell("sleep 1000"));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->signal, SIGKILL);
    EXPECT_FALSE(result->timed_out);
}

// A stray sbatch must not outlive the daemon that started it.
TEST_F(Subprocess, AProgramEndsWithTheProcessThatStartedIt) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t daemon = ::fork();
    if (daemon == 0) {
        net::io_context io{1};
        ProcessRunner runner{io};
        // It holds the pipe's end open for as long as it lives.
        ProcessCommand command;
        command.argv = {"/bin/sh", "-c",
                        "exec 9>/proc/" + std::to_string(::getpid()) + "/fd/" +
                            std::to_string(ends[1]) + "; echo x >&9; exec sleep 1000"};
        auto body = [&]() -> Task<void> {
            ProcessCommand copy = command;
            const auto result = co_await runner.run(std::move(copy));
            static_cast<void>(result);
        };
        net::co_spawn(io, body(), net::detached);
        io.run();
        ::_exit(0);
    }
    ::close(ends[1]);
    char byte = 0;
    ASSERT_EQ(::read(ends[0], &byte, 1), 1) << "the program runs";
    ::kill(daemon, SIGKILL);
    ::waitpid(daemon, nullptr, 0);
    ssize_t got = 1;
    while (got > 0) {
        got = ::read(ends[0], &byte, 1);  // ends when the last holder of the pipe is gone
    }
    EXPECT_EQ(got, 0);
    ::close(ends[0]);
}

}  // namespace
}  // namespace lockstep
