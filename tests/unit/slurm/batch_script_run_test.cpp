// The script in a real bash, with an srun that does what the test tells it over two FIFOs.
#include "job/base/attempt_end.hpp"
#include "job/base/files.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/slurm/batch_script_fixture.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::slurm {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

using Variables = std::vector<std::string>;

constexpr const char* kSrun = R"(#!/bin/bash -p
printf '%s\n' "$@" >"$SLURM_SUBMIT_DIR/arguments"
env >"$SLURM_SUBMIT_DIR/environment"
trap '' TERM
echo ready >"$SLURM_SUBMIT_DIR/ready"
read -r status <"$SLURM_SUBMIT_DIR/go"
exit "$status"
)";

// Ends the script as slurmd does for it; or slurmctld is away.
constexpr const char* kScancel = R"(#!/bin/bash -p
printf '%s\n' "$@" >"$SLURM_SUBMIT_DIR/cancelled"
[ ! -e "$SLURM_SUBMIT_DIR/away" ] || exit 1
kill -TERM "$PPID"
)";

class BatchScriptRun : public testing::Test {
  protected:
    void SetUp() override {
        write("srun", kSrun);
        ASSERT_EQ(::chmod(path("srun").c_str(), 0755), 0);
        write("scancel", kScancel);
        ASSERT_EQ(::chmod(path("scancel").c_str(), 0755), 0);
        ASSERT_EQ(::mkfifo(path("ready").c_str(), 0600), 0);
        ASSERT_EQ(::mkfifo(path("go").c_str(), 0600), 0);
        AttemptRequest request = request_of(kEverything);
        request.directory = folder_.path().string();
        BatchSite where = site();
        where.slurm_bin = folder_.path().string();
        where.agent_path = path("lockstep-agent");
        write("lockstep-agent", "");
        ASSERT_EQ(::chmod(where.agent_path.c_str(), 0755), 0);
        const auto script = make_batch_script(request, where);
        ASSERT_TRUE(script.has_value()) << script.error().message;
        write("batch.sh", script->text);
    }
    void TearDown() override {
        if (child_ > 0) {
            ::kill(child_, SIGKILL);
            ::waitpid(child_, nullptr, 0);
        }
        if (output_ >= 0) {
            ::close(output_);
        }
    }

    std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream{path(name)} << text;
    }
    std::string read(const std::string& name) const {
        std::ostringstream out;
        out << std::ifstream{path(name)}.rdbuf();
        return out.str();
    }
    std::vector<std::string> lines(const std::string& name) const {
        std::vector<std::string> out;
        std::istringstream in{read(name)};
        for (std::string line; std::getline(in, line);) {
            out.push_back(line);
        }
        return out;
    }

    Variables in_a_job(Variables more = {}) const {
        more.push_back("SLURM_JOB_ID=7");
        more.push_back("SLURM_SUBMIT_DIR=" + folder_.path().string());
        return more;
    }

    // Starts the script as slurmd would: by its first line, with this environment only.
    void start(Variables variables) {
        int ends[2];
        ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
        const std::string script = path("batch.sh");
        ASSERT_EQ(::chmod(script.c_str(), 0700), 0);
        child_ = ::fork();
        ASSERT_GE(child_, 0);
        if (child_ == 0) {
            ::dup2(ends[1], STDOUT_FILENO);
            ::dup2(ends[1], STDERR_FILENO);
            std::vector<char*> environment;
            for (auto& variable : variables) {
                environment.push_back(variable.data());
            }
            environment.push_back(nullptr);
            std::string name = script;
            char* const arguments[] = {name.data(), nullptr};
            ::execve(script.c_str(), arguments, environment.data());
            ::_exit(126);
        }
        ::close(ends[1]);
        output_ = ends[0];
    }
    void await_srun() const { ASSERT_EQ(read("ready"), "ready\n"); }
    void end_srun(int status) const { write("go", std::to_string(status) + "\n"); }
    std::string next_line() const {
        std::string line;
        for (char c = 0; ::read(output_, &c, 1) == 1 && c != '\n';) {
            line += c;
        }
        return line;
    }
    int exit_status() {
        int status = 0;
        EXPECT_EQ(::waitpid(child_, &status, 0), child_);
        child_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

    test::TemporaryFolder folder_;
    pid_t child_ = -1;
    int output_ = -1;
};

TEST_F(BatchScriptRun, StartsOneAgentPerNodeAndEndsAsSrunEnds) {
    start(in_a_job());
    await_srun();
    end_srun(37);
    EXPECT_EQ(exit_status(), 37);
    const auto arguments = lines("arguments");
    EXPECT_THAT(arguments,
                testing::IsSupersetOf({"--nodes=4", "--ntasks=4", "--ntasks-per-node=1",
                                       "--cpus-per-task=96", "--gpu-bind=none", "--mpi=none",
                                       "--kill-on-bad-exit=0", "--wait=0", "--export=ALL"}));
    const std::vector<std::string> agent(arguments.end() - 4, arguments.end());
    EXPECT_THAT(agent, testing::ElementsAre(path("lockstep-agent"), "run", "--attempt-dir",
                                            folder_.path().string()));
}

TEST_F(BatchScriptRun, GivesTheAgentsAnEnvironmentThatDoesNotDependOnTheSite) {
    write("hostile", "exit 99\n");
    start(in_a_job({"SLURM_CPUS_PER_TASK=3", "SRUN_CPUS_PER_TASK=4", "SLURM_EXPORT_ENV=NONE",
                    "PATH=/nowhere", "BASH_ENV=" + path("hostile"), "HOME=/home/user"}));
    await_srun();
    end_srun(0);
    EXPECT_EQ(exit_status(), 0);
    const auto environment = lines("environment");
    EXPECT_THAT(environment,
                Contains("PATH=" + folder_.path().string() + ":/usr/local/bin:/usr/bin:/bin"));
    EXPECT_THAT(environment, testing::IsSupersetOf({"SLURM_EXPORT_ENV=ALL", "HOME=/home/user"}));
    EXPECT_THAT(environment, Contains(testing::StartsWith("USER=")));
    EXPECT_THAT(environment, Not(Contains(HasSubstr("CPUS_PER_TASK"))));
}

TEST_F(BatchScriptRun, WaitsForTheAgentsWhenSlurmEndsTheJob) {
    start(in_a_job());
    await_srun();
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(::kill(child_, SIGTERM), 0);
    }
    end_srun(0);
    EXPECT_EQ(exit_status(), 0) << "they had ended well";
}

TEST_F(BatchScriptRun, WhatLockstepCancelledIsCancelledInSlurmToo) {
    start(in_a_job());
    await_srun();
    end_srun(kCancelledExit);
    EXPECT_EQ(exit_status(), kCancelledExit);
    EXPECT_EQ(read("cancelled"), "7\n");
}

TEST_F(BatchScriptRun, WhatCannotBeCancelledInSlurmHasFailedThere) {
    write("away", "");
    start(in_a_job());
    await_srun();
    end_srun(kCancelledExit);
    EXPECT_EQ(exit_status(), kCancelledExit);
}

TEST_F(BatchScriptRun, AnAgentThatWasLostDoesNotCountWhereTheOthersHaveLeftWord) {
    write(std::string{kOutcomeFileName}, "succeeded 7\n");
    start(in_a_job());
    await_srun();
    end_srun(137);
    EXPECT_EQ(exit_status(), 0);
    ::close(output_);

    write(std::string{kOutcomeFileName}, "succeeded 6\n");
    start(in_a_job());
    await_srun();
    end_srun(4);
    EXPECT_EQ(exit_status(), 4) << "a copy of the script, started later";
    ::close(output_);

    write(std::string{kOutcomeFileName}, "cancelled 7\n");
    start(in_a_job());
    await_srun();
    end_srun(137);
    EXPECT_EQ(exit_status(), kCancelledExit);
    EXPECT_EQ(read("cancelled"), "7\n");
}

TEST_F(BatchScriptRun, SaysThatItWasToldToEndWhenSrunFailsAfterThat) {
    start(in_a_job());
    await_srun();
    ASSERT_EQ(::kill(child_, SIGTERM), 0);
    end_srun(137);
    EXPECT_EQ(exit_status(), kToldToEndExit);
}

TEST_F(BatchScriptRun, KeepsTheExitStatusWhenTheSignalComesAsSrunEnds) {
    for (int round = 0; round < 60; ++round) {
        start(in_a_job());
        await_srun();
        const bool well = round % 2 == 0;
        end_srun(well ? 0 : 37);
        const int delay = round * 50;  // µs, over the time bash takes to notice
        ::usleep(static_cast<useconds_t>(delay));
        ::kill(child_, SIGTERM);
        EXPECT_THAT(exit_status(), well ? testing::AnyOf(0, 0) : testing::AnyOf(37, kToldToEndExit))
            << delay;
        ::close(output_);
        output_ = -1;
    }
}

TEST_F(BatchScriptRun, StartsNothingWhenSlurmRunsItAgain) {
    start(in_a_job({"SLURM_RESTART_COUNT=1"}));
    EXPECT_THAT(next_line(), HasSubstr("started job 7 again (restart 1)"));
    EXPECT_EQ(exit_status(), kRestartedExit);
    EXPECT_FALSE(std::filesystem::exists(path("arguments")));
}

TEST_F(BatchScriptRun, SaysThatTheNodeHasNoAgent) {
    ASSERT_TRUE(std::filesystem::remove(path("lockstep-agent")));
    start(in_a_job({"SLURMD_NODENAME=n7"}));
    EXPECT_EQ(next_line(), "lockstep: no program " + path("lockstep-agent") + " on n7");
    EXPECT_EQ(exit_status(), kNoAgentExit);
    EXPECT_FALSE(std::filesystem::exists(path("arguments")));
}

TEST_F(BatchScriptRun, StartsNothingOutsideOfSlurm) {
    start({});
    EXPECT_THAT(next_line(), HasSubstr("submit it with sbatch"));
    EXPECT_EQ(exit_status(), 64);
    EXPECT_FALSE(std::filesystem::exists(path("arguments")));
}

}  // namespace
}  // namespace lockstep::slurm
