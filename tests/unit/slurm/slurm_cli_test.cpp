// Slurm's programs as lockstepd calls them: a script for each that notes its arguments.
#include "scheduler-integration/slurm/slurm_cli.hpp"

#include "job/base/files.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {
namespace {

using testing::HasSubstr;

class SlurmPrograms : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* program : {"sbatch", "squeue", "scancel", "scontrol", "sinfo"}) {
            write(program, "");
        }
    }
    // Notes each argument in a line of its own, then runs the text.
    void write(const std::string& program, const std::string& text) {
        const std::string calls = (folder_ / (program + ".calls")).string();
        ASSERT_TRUE(write_file_atomic(
            folder_ / program, "#!/bin/sh\nprintf '%s\\n' \"$@\" >> " + calls + "\n" + text, 0755));
    }
    std::string calls(const std::string& program) {
        return read_file(folder_ / (program + ".calls"), 4096).value_or("");
    }
    template <class T>
    T run(Task<T> task) {
        std::optional<T> out;
        auto body = [&out](Task<T> inner) -> Task<void> { out.emplace(co_await std::move(inner)); };
        net::co_spawn(io_, body(std::move(task)), net::detached);
        io_.restart();
        io_.run();
        return std::move(*out);
    }
    SlurmCli& cli() {
        if (!cli_) {
            SlurmCli::Options options;
            options.bin_directory = folder_.path().string();
            options.user = "ada";
            cli_.emplace(io_, options, nullptr);
            EXPECT_TRUE(cli_->find_programs());
        }
        return *cli_;
    }

    test::TemporaryFolder folder_;
    net::io_context io_{1};
    std::optional<SlurmCli> cli_;
};

// A site has a wrapper of its own around sbatch, first on PATH: lockstepd looked for all programs
// beside it, and did not start.
TEST_F(SlurmPrograms, AWrapperAroundSbatchHidesNoOtherProgram) {
    const std::string before = std::getenv("PATH");
    const std::filesystem::path wrappers = folder_ / "wrappers";
    std::filesystem::create_directory(wrappers);
    ASSERT_TRUE(write_file_atomic(wrappers / "sbatch", "#!/bin/sh\necho 'slurm 22.05.8'\n", 0755));
    write("srun", "");
    ::setenv("PATH", (wrappers.string() + ":" + folder_.path().string()).c_str(), 1);
    EXPECT_EQ(folder_of_program("sbatch", ""), wrappers.string());
    EXPECT_EQ(folder_of_program("squeue", ""), folder_.path().string());
    EXPECT_EQ(folder_of_program("srun", ""), folder_.path().string());
    EXPECT_EQ(folder_of_program("sacct", ""), "");
    EXPECT_EQ(folder_of_program("squeue", wrappers.string()), "") << "nowhere but where it is told";
    SlurmCli::Options options;
    options.user = "ada";
    SlurmCli found{io_, options, nullptr};
    EXPECT_TRUE(found.find_programs());
    ::setenv("PATH", before.c_str(), 1);
    EXPECT_TRUE(run(found.cancel(17, "a")));
    EXPECT_EQ(calls("scancel"), "--name=a\n17\n");
}

// Where sbatch and the others are, those beside it are Slurm's of the same release.
TEST_F(SlurmPrograms, ProgramsBesideSbatchGoBeforeOthersOnThePath) {
    const std::string before = std::getenv("PATH");
    const std::filesystem::path old = folder_ / "old";
    std::filesystem::create_directory(old);
    ASSERT_TRUE(write_file_atomic(old / "squeue", "#!/bin/sh\n", 0755));
    ::setenv("PATH", (old.string() + ":" + folder_.path().string()).c_str(), 1);
    EXPECT_EQ(folder_of_program("squeue", ""), folder_.path().string());
    ::setenv("PATH", before.c_str(), 1);
}

// After a crash slurmctld gives numbers out again: then the number alone is somebody else's job.
TEST_F(SlurmPrograms, ACancelNamesTheJobBesideItsNumber) {
    EXPECT_TRUE(run(cli().cancel(17, "first-01j0000000000000000000000a-a1")));
    EXPECT_EQ(calls("scancel"), "--name=first-01j0000000000000000000000a-a1\n17\n");
}

TEST_F(SlurmPrograms, AJobThatIsOverAlreadyIsCancelledWell) {
    write("scancel",
          "echo 'scancel: error: Kill job error on job id 17: Job/step already completing or "
          "completed' >&2; exit 1\n");
    EXPECT_TRUE(run(cli().cancel(17, "a")));
    write("scancel", "echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1\n");
    EXPECT_FALSE(run(cli().cancel(17, "a")));
}

// A list that was cut off would make jobs absent.
TEST_F(SlurmPrograms, AnAnswerThatIsTooLongIsNoAnswer) {
    write("squeue", "head -c 20000000 /dev/zero | tr '\\0' '\\n'\n");
    const auto jobs = run(cli().jobs());
    ASSERT_FALSE(jobs);
    EXPECT_EQ(jobs.error().code, Errc::unavailable);
    EXPECT_THAT(jobs.error().message, HasSubstr("more than the limit"));
}

TEST_F(SlurmPrograms, WhatASitesPluginSaysIsARefusalToBeLookedInto) {
    write("sbatch",
          "echo 'sbatch: error: ask the front desk' >&2\n"
          "echo 'sbatch: error: Batch job submission failed: Unspecified error' >&2; exit 1\n");
    const SubmitReply reply = run(cli().submit("/x/batch.sh"));
    EXPECT_EQ(reply.kind, SubmitReply::Kind::denied);
    EXPECT_EQ(reply.message, "ask the front desk; Batch job submission failed: Unspecified error");
    write("sbatch", "echo 'you have no budget' >&2; exit 1\n");
    EXPECT_EQ(run(cli().submit("/x/batch.sh")).kind, SubmitReply::Kind::ambiguous);
    EXPECT_TRUE(run(cli().submit("/x/batch.sh")).ended_badly);
}

// Found by hand, on a machine without slurm.conf: "cannot start: not Slurm's version: ".
TEST_F(SlurmPrograms, WithoutAConfigurationTheStartSaysWhatSlurmSays) {
    write("sbatch",
          "echo 'sbatch: error: fetch_config: DNS SRV lookup failed' >&2\n"
          "echo 'sbatch: fatal: Could not establish a configuration source' >&2; exit 1\n");
    const auto facts = run(cli().probe());
    ASSERT_FALSE(facts);
    EXPECT_EQ(facts.error().code, Errc::invalid);
    EXPECT_THAT(facts.error().message, HasSubstr("sbatch --version: "));
    EXPECT_THAT(facts.error().message, HasSubstr("Could not establish a configuration source"));
}

}  // namespace
}  // namespace lockstep
