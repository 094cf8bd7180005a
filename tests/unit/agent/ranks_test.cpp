// Starting, watching and stopping ranks: what a user's program may do, and what is said of it.
#include "job/agent/ranks/rank_state.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/unit/agent/agent_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

using RanksTest = AgentTest;

TEST_F(RanksTest, RunsEveryRankAndReportsExitsLogsAndLosses) {
    FakeDaemon daemon{shell("echo rank $RANK of $WORLD_SIZE; echo oops >&2;"
                            "echo epoch: 0, batch: 1, loss is: [0.5]",
                            2),
                      ranks(2)};
    EXPECT_EQ(run(daemon), 0);

    EXPECT_EQ(daemon.tickets.size(), 1U);
    const auto started = daemon.all<wire::Started>();
    ASSERT_THAT(started, SizeIs(1));
    EXPECT_THAT(started[0].ranks, SizeIs(2));
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(2));
    for (const auto& exit : exits) {
        EXPECT_EQ(exit.exit_code, 0);
        EXPECT_EQ(exit.signal, 0);
        EXPECT_FALSE(exit.stopped);
        EXPECT_EQ(exit.log_tail, "");
    }
    EXPECT_EQ(daemon.count<wire::Done>(), 1U);
    EXPECT_THAT(daemon.values("loss"), ElementsAre(0.5, 0.5));
    EXPECT_EQ(rank_log(0), "rank 0 of 2\noops\nepoch: 0, batch: 1, loss is: [0.5]\n");
    EXPECT_EQ(rank_log(1), "rank 1 of 2\noops\nepoch: 0, batch: 1, loss is: [0.5]\n");
    const auto result = wire::decode_result_file(text_of(folder / wire::result_file_name(0)));
    ASSERT_TRUE(result);
    EXPECT_THAT(result->exits, SizeIs(2));
}

TEST_F(RanksTest, TheFirstRankToFailIsTheCauseAndTheOthersAreStopped) {
    FakeDaemon daemon{shell("if [ $RANK = 1 ]; then echo boom; exit 7; fi; exec sleep 600", 3),
                      ranks(3)};
    EXPECT_EQ(run(daemon), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(3));
    EXPECT_EQ(exits[0].rank, 1);
    EXPECT_EQ(exits[0].exit_code, 7);
    EXPECT_FALSE(exits[0].stopped);
    EXPECT_EQ(exits[0].log_tail, "boom\n");
    for (std::size_t i = 1; i < 3; ++i) {
        EXPECT_EQ(exits[i].signal, SIGTERM);
        EXPECT_TRUE(exits[i].stopped);
    }
}

TEST_F(RanksTest, ARankKilledByASignalIsReportedWithIt) {
    FakeDaemon daemon{shell("kill -SEGV $$"), {}};
    EXPECT_EQ(run(daemon), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].exit_code, -1);
    EXPECT_EQ(exits[0].signal, SIGSEGV);
    EXPECT_FALSE(exits[0].oom);
}

TEST_F(RanksTest, ACommandThatDoesNotExistIsAFaultAndNothingStarts) {
    JobSpec spec = shell("", 2);
    spec.command = {"no-such-program-here", "x"};
    FakeDaemon daemon{spec, ranks(2)};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].cause_class, "user_error");
    EXPECT_EQ(faults[0].message, "command not found: no-such-program-here");
    EXPECT_EQ(daemon.count<wire::Ready>(), 0U);
    EXPECT_EQ(daemon.count<wire::Started>(), 0U);
    EXPECT_EQ(daemon.count<wire::Done>(), 1U);
}

// `command: [python, train.py]` without the environment that it was handed in from.
TEST_F(RanksTest, OfAPythonThatIsNotFoundTheCauseSaysHowTheJobGetsTheUsersEnvironment) {
    JobSpec spec = shell("");
    spec.command = {"python", "train.py"};
    spec.environment["PATH"] = "/nowhere";
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_THAT(faults[0].message, StartsWith("command not found: python ("));
    EXPECT_THAT(faults[0].message, HasSubstr("inherit_environment: true"));
}

TEST_F(RanksTest, OfAPythonThatIsNotFoundInTheUsersEnvironmentNothingMoreIsSaid) {
    JobSpec spec = shell("");
    spec.command = {"python", "train.py"};
    spec.environment["PATH"] = "/nowhere";
    spec.inherit_environment = true;
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].message, "command not found: python");
}

TEST_F(RanksTest, AWorkingDirectoryThatIsNotThereIsAFault) {
    JobSpec spec = shell("true");
    spec.working_directory = "/nowhere/at/all";
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].message, "working directory does not exist: /nowhere/at/all");
}

TEST_F(RanksTest, ACheckpointDirectoryThatNoNodeCouldMakeIsTheUsersError) {
    FakeDaemon daemon{shell("true"), {}};
    daemon.welcome.checkpoint_directory = "/dev/null/checkpoints";
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].cause_class, "user_error");
}

// Such a job ended as its user's error, and no other node was tried.
TEST_F(RanksTest, ACheckpointDirectoryOnADiskThatIsFullIsTheNodesFault) {
    const TemporaryFolder full;
    // Its only inode is the folder itself.
    if (::mount("none", full.path().c_str(), "tmpfs", 0, "nr_inodes=1") != 0) {
        GTEST_SKIP() << "needs the right to mount a small tmpfs";
    }
    FakeDaemon daemon{shell("true"), {}};
    daemon.welcome.checkpoint_directory = (full / "checkpoints").string();
    EXPECT_EQ(run(daemon), 0);
    ::umount2(full.path().c_str(), MNT_DETACH);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].cause_class, "node_lost");
    EXPECT_THAT(faults[0].message, HasSubstr("No space left on device"));
    EXPECT_EQ(daemon.count<wire::Started>(), 0U);
}

TEST_F(RanksTest, WhatSetupExportsIsTheRanksAndItRunsOncePerAttempt) {
    JobSpec spec = shell("echo $COLOUR $RECORDED; echo \"$TEXT\"");
    spec.inherit_environment = true;
    spec.recorded_environment = {{"PATH", "/usr/bin:/bin"}, {"RECORDED", "it's"}};
    spec.setup = "echo once; export COLOUR=green TEXT='two\nlines'\n";
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_EQ(rank_log(0), "green it's\ntwo\nlines\n");
    EXPECT_EQ(text_of(folder / "setup-00000.log"), "once\n");
}

// pyenv and conda take locks while a login shell runs: one that was killed there left them, and
// each later login shell of that user waited a minute.
TEST_F(RanksTest, SetupThatIsNotOverHasTimeToCleanUpWhenItsJobEnds) {
    JobSpec spec = shell("true");
    // The lock is held once what the shell waits for is a program of its own: a SIGTERM between its
    // fork and its exec is lost in the handler that it has from the shell, which waits on then.
    spec.setup =
        "trap 'sleep 0.3; echo gone > lock' EXIT\n"
        "sh -c 'echo held > lock; exec sleep 600'\n";
    FakeDaemon::Options options;
    options.start = false;
    options.stop_when_done = false;
    FakeDaemon daemon{spec, options};
    const auto agent =
        start_until(daemon, [&] { return text_of(folder / "lock").starts_with("held"); });
    daemon.send(0, wire::Stop{"a test", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(text_of(folder / "lock"), "gone\n") << agent->log();
}

TEST_F(RanksTest, ASetupThatFailsIsAFaultWithItsLineAndItsOutput) {
    JobSpec spec = shell("true");
    spec.setup = "echo before\nfalse\necho after";
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].cause_class, "user_error");
    EXPECT_EQ(faults[0].message, "setup failed with exit code 1: line 2: false\nbefore\n");
    EXPECT_EQ(daemon.count<wire::Started>(), 0U);
}

// The shim between the agent and the rank must not load the rank's libraries.
TEST_F(RanksTest, VariablesOfTheLinkerReachTheRankAndNotTheAgentsShim) {
    const auto bad = folder / "lib";
    std::filesystem::create_directories(bad);
    for (const char* name : {"libfmt.so.9", "libspdlog.so.1.10", "libcrypto.so.3"}) {
        ASSERT_TRUE(write_file_atomic(bad / name, "no library"));
    }
    JobSpec spec = shell("echo $LD_LIBRARY_PATH; env | grep -c HELD_BACK");
    spec.environment["LD_LIBRARY_PATH"] = bad.string();
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    EXPECT_EQ(rank_log(0), bad.string() + "\n0\n");
}

TEST_F(RanksTest, ACommandThatIsNotExecutableIsAFault) {
    std::filesystem::path script = folder / "train.sh";
    ASSERT_TRUE(write_file_atomic(script, "echo hi\n", 0644));
    JobSpec spec = shell("true");
    spec.command = {"./train.sh"};
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_THAT(faults[0].message, HasSubstr("command is not executable: "));
}

TEST_F(RanksTest, ARankThatIgnoresTermIsKilledAfterTheGrace) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"), options};
    const auto agent = start_until(daemon, [&] { return rank_log(0) == "ready\n"; });
    daemon.send(0, wire::Stop{"enough", 300});
    ASSERT_EQ(code_of(daemon, *agent), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].signal, SIGKILL);
    EXPECT_TRUE(exits[0].stopped);
    EXPECT_FALSE(exits[0].oom);
}

// It would hear SIGTERM only once it goes on: the whole grace would pass for nothing.
TEST_F(RanksTest, AStoppedRankEndsWithoutTheGraceWhenItIsToldTo) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("kill -STOP $$; sleep 600"), options};
    const auto agent = start_until(daemon, [&] {
        const auto started = daemon.all<wire::Started>();
        return !started.empty() && look_at_rank(0, started[0].ranks.at(0).pid).state == "T";
    });
    daemon.send(0, wire::Stop{"enough", 60'000});
    ASSERT_EQ(code_of(daemon, *agent), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].signal, SIGTERM);
}

TEST_F(RanksTest, GrandchildrenOfARankDoNotOutliveIt) {
    FakeDaemon daemon{shell("sleep 600 & echo $! > child; exit 0"), {}};
    EXPECT_EQ(run(daemon), 0);
    const pid_t child = std::stoi(text_of(folder / "child"));
    // Killed, and (reparented) reaped or about to be: not running either way.
    // A signal that was sent is not yet a death.
    std::string state;
    EXPECT_TRUE(daemon.run_until([&] {
        state = text_of("/proc/" + std::to_string(child) + "/stat");
        return state.empty() || state.find(") Z") != std::string::npos;
    })) << state;
}

TEST_F(RanksTest, TheNativeTrainerFindsItsConfigurationAndACheckpointFolder) {
    const auto trainer = folder / "fake-train";
    ASSERT_TRUE(write_file_atomic(trainer,
                                  "#!/bin/sh\ncat $LOCKSTEP_TRAIN_CONFIG > config.json\n"
                                  "test -d $LOCKSTEP_CHECKPOINT_DIR && echo loss: 5\n",
                                  0755));
    JobSpec spec;
    spec.name = "native";
    spec.train.emplace();
    spec.train->epochs = 7;
    FakeDaemon daemon{spec, {}};
    daemon.welcome.checkpoint_directory = (folder / "deep/checkpoints").string();
    const auto agent = start(daemon, 0, {"--train-program", trainer.string()});
    ASSERT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(rank_log(0), "loss: 5\n");
    EXPECT_EQ(daemon.values("loss").size(), 0U) << "what the trainer prints is not captured";
    const auto config = parse_json(text_of(folder / "config.json"));
    ASSERT_TRUE(config);
    EXPECT_EQ(config->at("epochs"), 7);
}

TEST_F(RanksTest, AnEndlesslyPrintingRankStaysWithinDiskAndMemory) {
    // 1 GiB in lines of 64 bytes.
    FakeDaemon daemon{shell("yes 'step 1 lost 0123456789012345678901234567890123456789012345678' |"
                            "head -c 1073741824; echo; echo step=7 loss=0.25"),
                      {}};
    const auto agent = start(daemon);
    long memory = 0;
    ASSERT_TRUE(daemon.run_until(
        [&] {
            memory = std::max(memory, agent->peak_memory_mib());
            return agent->ended();
        },
        std::chrono::seconds{90}))
        << agent->log();
    EXPECT_EQ(agent->code(), 0);
    EXPECT_LT(memory, kSanitized ? 256 : 64);  // AddressSanitizer keeps what was freed
    struct stat info{};
    ASSERT_EQ(::stat((folder.path() / wire::rank_log_name(0)).c_str(), &info), 0);
    EXPECT_GT(info.st_size, 1LL << 30);
    EXPECT_LE(info.st_blocks * 512, limits::kLogBytes + (1 << 20));
    EXPECT_THAT(daemon.values("loss"), ElementsAre(0.25));
    EXPECT_GE(daemon.count<wire::Beat>(), 1U);
}

}  // namespace
}  // namespace lockstep::test
