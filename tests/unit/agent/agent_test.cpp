// The real lockstep-agent against a daemon that plays by wire.hpp.
#include "job/base/limits.hpp"
#include "tests/support/fake_daemon.hpp"
#include "tests/unit/agent/agent_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmath>
#include <cstring>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

JobSpec shell(const std::string& script, std::int32_t ranks = 1) {
    JobSpec spec;
    spec.name = "agent-test";
    spec.framework = Framework::command;
    spec.command = {"sh", "-c", script};
    spec.resources.ranks_per_node = ranks;
    return spec;
}

FakeDaemon::Options ranks(std::int32_t count) {
    FakeDaemon::Options options;
    options.ranks_per_node = count;
    return options;
}

class AgentTest : public testing::Test {
  protected:
    // Runs the job to its end and returns the agent's exit code.
    int run(FakeDaemon& daemon) {
        daemon.write_attempt_file(folder.path());
        AgentProcess agent{folder.path()};
        EXPECT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
        return agent.ended() ? agent.code() : -1000;
    }
    std::string rank_log(std::int32_t rank) const {
        return text_of(folder.path() / wire::rank_log_name(rank));
    }
    TemporaryFolder folder;
};

TEST_F(AgentTest, RunsEveryRankAndReportsExitsLogsAndLosses) {
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

TEST_F(AgentTest, TheFirstRankToFailIsTheCauseAndTheOthersAreStopped) {
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

TEST_F(AgentTest, ARankKilledByASignalIsReportedWithIt) {
    FakeDaemon daemon{shell("kill -SEGV $$"), {}};
    EXPECT_EQ(run(daemon), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].exit_code, -1);
    EXPECT_EQ(exits[0].signal, SIGSEGV);
    EXPECT_FALSE(exits[0].oom);
}

TEST_F(AgentTest, ACommandThatDoesNotExistIsAFaultAndNothingStarts) {
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

TEST_F(AgentTest, AWorkingDirectoryThatIsNotThereIsAFault) {
    JobSpec spec = shell("true");
    spec.working_directory = "/nowhere/at/all";
    FakeDaemon daemon{spec, {}};
    EXPECT_EQ(run(daemon), 0);
    const auto faults = daemon.all<wire::Fault>();
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].message, "working directory does not exist: /nowhere/at/all");
}

TEST_F(AgentTest, ACommandThatIsNotExecutableIsAFault) {
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

TEST_F(AgentTest, ARankThatIgnoresTermIsKilledAfterTheGrace) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"), options};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return rank_log(0) == "ready\n"; }));
    daemon.send(0, wire::Stop{"enough", 300});
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
    EXPECT_EQ(agent.code(), 0);
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].signal, SIGKILL);
    EXPECT_TRUE(exits[0].stopped);
    EXPECT_FALSE(exits[0].oom);
}

TEST_F(AgentTest, GrandchildrenOfARankDoNotOutliveIt) {
    FakeDaemon daemon{shell("sleep 600 & echo $! > child; exit 0"), {}};
    EXPECT_EQ(run(daemon), 0);
    const pid_t child = std::stoi(text_of(folder / "child"));
    // Killed, and (reparented) reaped or about to be: not running either way.
    const std::string state = text_of("/proc/" + std::to_string(child) + "/stat");
    EXPECT_TRUE(state.empty() || state.find(") Z") != std::string::npos) << state;
}

TEST_F(AgentTest, RanksDieWithAnAgentThatIsKilled) {
    FakeDaemon daemon{shell("exec sleep 600"), {}};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 1; }));
    const auto pid = static_cast<pid_t>(daemon.all<wire::Started>()[0].ranks[0].pid);
    agent.signal(SIGKILL);
    EXPECT_TRUE(daemon.run_until([&] {
        const std::string state = text_of("/proc/" + std::to_string(pid) + "/stat");
        return state.empty() || state.find(") Z") != std::string::npos;
    }));
    EXPECT_EQ(agent.code(), -SIGKILL);
}

TEST_F(AgentTest, AbortStopsTheGenerationAndTheAgentWaitsForTheNext) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("echo gen $LOCKSTEP_GENERATION restart $TORCHELASTIC_RESTART_COUNT;"
                            "[ $LOCKSTEP_GENERATION = 2 ] || exec sleep 600"),
                      options};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 1; }));
    ASSERT_TRUE(daemon.run_until([&] { return rank_log(0) == "gen 1 restart 0\n"; }));
    daemon.send(0, wire::Abort{1, "a test", 5000});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Done>() == 1; }));
    EXPECT_TRUE(daemon.all<wire::Exited>()[0].stopped);

    daemon.generation = 2;
    wire::World world;
    world.generation = 2;
    world.world_size = 1;
    world.local_ranks = 1;
    world.master_address = "127.0.0.1";
    world.master_port = daemon.all<wire::Join>()[0].port;
    world.hosts = {"host-0"};
    daemon.send(0, world);
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Done>() == 2; })) << agent.log();
    EXPECT_EQ(daemon.all<wire::Exited>()[1].generation, 2);
    EXPECT_EQ(rank_log(0), "gen 1 restart 0\n[lockstep: generation 2 starts]\ngen 2 restart 1\n");
    daemon.send(0, wire::Stop{"over", 1000});
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); }));
    EXPECT_EQ(agent.code(), 0);
}

TEST_F(AgentTest, RanksGoOnWhileTheDaemonIsGoneAndNothingIsLost) {
    FakeDaemon::Options options;
    options.acknowledge = false;
    FakeDaemon daemon{shell("echo step=1 loss=1; until [ -e go ]; do sleep 0.02; done;"
                            "echo step=2 loss=2; exit 3"),
                      options};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return daemon.values("loss").size() == 1; }));
    const std::size_t exits_before = daemon.count<wire::Exited>();
    daemon.kill();
    ASSERT_TRUE(write_file_atomic(folder / "go", ""));
    ASSERT_TRUE(daemon.run_until(
        [&] { return std::filesystem::exists(folder / wire::result_file_name(0)); }));

    daemon.batches.clear();
    daemon.options.acknowledge = true;
    daemon.restart();
    daemon.write_attempt_file(folder.path());
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
    EXPECT_EQ(agent.code(), 0);
    EXPECT_EQ(exits_before, 0U);
    EXPECT_THAT(daemon.values("loss"), ElementsAre(1, 2)) << "unacknowledged batches come again";
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].exit_code, 3);
    EXPECT_EQ(daemon.count<wire::Started>(), 2U) << "the agent tells the new daemon of its ranks";
    const auto hellos = daemon.all<wire::Hello>();
    EXPECT_EQ(hellos.back().generation, 1);
    EXPECT_EQ(hellos.front().incarnation, hellos.back().incarnation);
}

TEST_F(AgentTest, AnAgentThatGathersJoinsARestartedDaemonAgain) {
    FakeDaemon::Options options;
    options.start = false;
    FakeDaemon daemon{shell("true"), options};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Ready>() == 1; }));
    daemon.kill();
    daemon.options.start = true;
    daemon.restart();
    daemon.write_attempt_file(folder.path());
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
    EXPECT_EQ(daemon.count<wire::Join>(), 2U);
    EXPECT_EQ(daemon.count<wire::Exited>(), 1U);
}

TEST_F(AgentTest, TheUnauthorizedIsRetriedBecauseTheDaemonMayBeStarting) {
    FakeDaemon daemon{shell("true"), {}};
    daemon.options.refuse_upgrades = 3;
    EXPECT_EQ(run(daemon), 0);
    EXPECT_EQ(daemon.tickets.size(), 4U);
    EXPECT_EQ(daemon.count<wire::Exited>(), 1U);
}

TEST_F(AgentTest, AFencedAgentKillsItsRanksAndEndsWithItsOwnCode) {
    FakeDaemon daemon{shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"), {}};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return rank_log(0) == "ready\n"; }));
    const auto pid = static_cast<pid_t>(daemon.all<wire::Started>()[0].ranks[0].pid);
    daemon.send(0, wire::Fenced{1, "superseded"});
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
    EXPECT_EQ(agent.code(), 4);
    EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(AgentTest, TermStopsTheRanksAndReportsThem) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("exec sleep 600"), options};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 1; }));
    agent.signal(SIGTERM);
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
    EXPECT_EQ(agent.code(), 0);
    ASSERT_THAT(daemon.all<wire::Exited>(), SizeIs(1));
    EXPECT_TRUE(daemon.all<wire::Exited>()[0].stopped);
    EXPECT_EQ(daemon.count<wire::Done>(), 1U);
}

TEST_F(AgentTest, OnlyOneOfTwoAgentsGetsTheNode) {
    FakeDaemon daemon{shell("true"), {}};
    daemon.write_attempt_file(folder.path());
    AgentProcess one{folder.path()};
    AgentProcess two{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return one.ended() && two.ended(); }));
    EXPECT_THAT((std::vector{one.code(), two.code()}), testing::UnorderedElementsAre(0, 3));
    EXPECT_EQ(daemon.count<wire::Started>(), 1U);
    AgentProcess later{folder.path()};
    EXPECT_EQ(later.code(), 3) << "also when the first has ended";
    EXPECT_THAT(later.log(), HasSubstr("this node was claimed before"));
}

TEST_F(AgentTest, TwoNodesGetTheMasterOfTheFirst) {
    JobSpec spec = shell("echo $RANK $NODE_RANK $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT");
    FakeDaemon::Options options;
    options.nodes = 2;
    FakeDaemon daemon{spec, options};
    daemon.write_attempt_file(folder.path());
    AgentProcess zero{folder.path(), 0};
    AgentProcess one{folder.path(), 1};
    ASSERT_TRUE(daemon.run_until([&] { return zero.ended() && one.ended(); })) << zero.log();
    const auto joins = daemon.all<wire::Join>();
    ASSERT_THAT(joins, SizeIs(2));
    EXPECT_NE(joins[0].port, joins[1].port);
    const std::string master = rank_log(0).substr(rank_log(0).rfind(' ') + 1);
    EXPECT_THAT(rank_log(0), testing::StartsWith("0 0 0 127.0.0.1:"));
    EXPECT_EQ(rank_log(1), "1 1 0 " + master);
}

TEST_F(AgentTest, RankZeroCanBindTheHeldPortAndNobodyElseCouldBefore) {
    FakeDaemon::Options options;
    options.start = false;
    JobSpec spec = shell("");
    spec.command = {"/usr/bin/python3", "-c",
                    "import os,socket; s=socket.socket(); "
                    "s.bind(('', int(os.environ['MASTER_PORT']))); s.listen(); print('bound')"};
    FakeDaemon daemon{spec, options};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Ready>() == 1; }));
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(daemon.all<wire::Join>()[0].port));
    EXPECT_NE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
    daemon.send(0, wire::Start{1});
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
    EXPECT_EQ(rank_log(0), "bound\n");
}

TEST_F(AgentTest, TheNativeTrainerFindsItsConfigurationAndACheckpointFolder) {
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
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path(), 0, {"--train-program", trainer.string()}};
    ASSERT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
    EXPECT_EQ(rank_log(0), "loss: 5\n");
    EXPECT_EQ(daemon.values("loss").size(), 0U) << "what the trainer prints is not captured";
    const auto config = parse_json(text_of(folder / "config.json"));
    ASSERT_TRUE(config);
    EXPECT_EQ(config->at("epochs"), 7);
}

TEST_F(AgentTest, AnUnmodifiedTorchScriptTrainsOnTwoNodesOfTwoRanks) {
    if (::system("/usr/bin/python3 -c 'import torch' >/dev/null 2>&1") != 0) {
        GTEST_SKIP() << "python3-torch is not installed";
    }
    JobSpec spec = shell("");
    spec.framework = Framework::pytorch;
    spec.command = {"/usr/bin/python3", "-c",
                    "import torch, torch.distributed as dist\n"
                    "dist.init_process_group('gloo')\n"
                    "m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))\n"
                    "o = torch.optim.SGD(m.parameters(), .05)\n"
                    "for i in range(3):\n"
                    "    loss = (m(torch.ones(4, 8)) ** 2).mean()\n"
                    "    o.zero_grad(); loss.backward(); o.step()\n"
                    "    print(f'epoch: 0, batch: {i}, loss is: [{loss.item():.5f}]')\n"
                    "dist.barrier()\n"};
    FakeDaemon::Options options;
    options.nodes = 2;
    options.ranks_per_node = 2;
    FakeDaemon daemon{spec, options};
    daemon.write_attempt_file(folder.path());
    AgentProcess zero{folder.path(), 0};
    AgentProcess one{folder.path(), 1};
    ASSERT_TRUE(
        daemon.run_until([&] { return zero.ended() && one.ended(); }, std::chrono::seconds{100}))
        << zero.log();
    for (const auto& exit : daemon.all<wire::Exited>()) {
        EXPECT_EQ(exit.exit_code, 0) << exit.log_tail;
    }
    std::size_t losses = 0;
    for (const Batch& batch : daemon.batches) {
        losses += batch.find("loss") != nullptr ? batch.rows() : 0;
    }
    EXPECT_EQ(losses, 12U);
}

TEST_F(AgentTest, AnEndlesslyPrintingRankStaysWithinDiskAndMemory) {
    // 1 GiB in lines of 64 bytes.
    FakeDaemon daemon{shell("yes 'step 1 lost 0123456789012345678901234567890123456789012345678' |"
                            "head -c 1073741824; echo; echo step=7 loss=0.25"),
                      {}};
    daemon.write_attempt_file(folder.path());
    AgentProcess agent{folder.path()};
    long memory = 0;
    ASSERT_TRUE(daemon.run_until(
        [&] {
            memory = std::max(memory, agent.peak_memory_mib());
            return agent.ended();
        },
        std::chrono::seconds{90}))
        << agent.log();
    EXPECT_EQ(agent.code(), 0);
    EXPECT_LT(memory, 64);
    struct stat info {};
    ASSERT_EQ(::stat((folder.path() / wire::rank_log_name(0)).c_str(), &info), 0);
    EXPECT_GT(info.st_size, 1LL << 30);
    EXPECT_LE(info.st_blocks * 512, limits::kLogBytes + (1 << 20));
    EXPECT_THAT(daemon.values("loss"), ElementsAre(0.25));
    EXPECT_GE(daemon.count<wire::Beat>(), 1U);
}

}  // namespace
}  // namespace lockstep::test
