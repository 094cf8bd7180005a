// The agent and its daemon: claim, rendezvous, lost connections, orders to stop.
#include "tests/unit/agent/agent_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <vector>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

using SessionTest = AgentTest;

TEST_F(SessionTest, RanksDieWithAnAgentThatIsKilled) {
    FakeDaemon daemon{shell("exec sleep 600"), {}};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    const auto pid = static_cast<pid_t>(daemon.all<wire::Started>()[0].ranks[0].pid);
    agent->signal(SIGKILL);
    EXPECT_TRUE(daemon.run_until([&] {
        const std::string state = text_of("/proc/" + std::to_string(pid) + "/stat");
        return state.empty() || state.find(") Z") != std::string::npos;
    }));
    EXPECT_EQ(agent->code(), -SIGKILL);
}

TEST_F(SessionTest, AbortStopsTheGenerationAndTheAgentWaitsForTheNext) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("echo gen $LOCKSTEP_GENERATION restart $TORCHELASTIC_RESTART_COUNT;"
                            "[ $LOCKSTEP_GENERATION = 2 ] || exec sleep 600"),
                      options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
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
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Done>() == 2; })) << agent->log();
    EXPECT_EQ(daemon.all<wire::Exited>()[1].generation, 2);
    EXPECT_EQ(rank_log(0), "gen 1 restart 0\n[lockstep: generation 2 starts]\ngen 2 restart 1\n");
    daemon.send(0, wire::Stop{"over", 1000});
    ASSERT_EQ(code_of(daemon, *agent), 0);
}

TEST_F(SessionTest, RanksGoOnWhileTheDaemonIsGoneAndNothingIsLost) {
    FakeDaemon::Options options;
    options.acknowledge = false;
    FakeDaemon daemon{shell("echo step=1 loss=1; until [ -e go ]; do sleep 0.02; done;"
                            "echo step=2 loss=2; exit 3"),
                      options};
    const auto agent = start_until(daemon, [&] { return daemon.values("loss").size() == 1; });
    const std::size_t exits_before = daemon.count<wire::Exited>();
    daemon.kill();
    ASSERT_TRUE(write_file_atomic(folder / "go", ""));
    ASSERT_TRUE(daemon.run_until(
        [&] { return std::filesystem::exists(folder / wire::result_file_name(0)); }));

    daemon.batches.clear();
    daemon.options.acknowledge = true;
    daemon.restart();
    daemon.write_attempt_file(folder.path());
    ASSERT_EQ(code_of(daemon, *agent), 0);
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

TEST_F(SessionTest, AnAgentThatGathersJoinsARestartedDaemonAgain) {
    FakeDaemon::Options options;
    options.start = false;
    FakeDaemon daemon{shell("true"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Ready>() == 1; });
    daemon.kill();
    daemon.options.start = true;
    daemon.restart();
    daemon.write_attempt_file(folder.path());
    ASSERT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(daemon.count<wire::Join>(), 2U);
    EXPECT_EQ(daemon.count<wire::Exited>(), 1U);
}

TEST_F(SessionTest, TheUnauthorizedIsRetriedBecauseTheDaemonMayBeStarting) {
    FakeDaemon daemon{shell("true"), {}};
    daemon.options.refuse_upgrades = 3;
    EXPECT_EQ(run(daemon), 0);
    EXPECT_EQ(daemon.tickets.size(), 4U);
    EXPECT_EQ(daemon.count<wire::Exited>(), 1U);
}

TEST_F(SessionTest, AFencedAgentKillsItsRanksAndEndsWithItsOwnCode) {
    FakeDaemon daemon{shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"), {}};
    const auto agent = start_until(daemon, [&] { return rank_log(0) == "ready\n"; });
    const auto pid = static_cast<pid_t>(daemon.all<wire::Started>()[0].ranks[0].pid);
    daemon.send(0, wire::Fenced{1, "superseded"});
    ASSERT_EQ(code_of(daemon, *agent), 4);
    EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(SessionTest, AnAgentThatHasSaidAllLeavesWhenTheDaemonTakesNoMore) {
    FakeDaemon::Options options;
    options.acknowledge = false;
    FakeDaemon daemon{shell("true"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Done>() == 1; });
    const auto before = std::chrono::steady_clock::now();
    daemon.send(0, wire::Fenced{1, "the attempt is over"});
    ASSERT_EQ(code_of(daemon, *agent), 0) << "its result is written, nothing runs";
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds{4});
}

TEST_F(SessionTest, TermStopsTheRanksAndReportsThem) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("exec sleep 600"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    agent->signal(SIGTERM);
    ASSERT_EQ(code_of(daemon, *agent), 0);
    ASSERT_THAT(daemon.all<wire::Exited>(), SizeIs(1));
    EXPECT_TRUE(daemon.all<wire::Exited>()[0].stopped);
    EXPECT_EQ(daemon.count<wire::Done>(), 1U);
}

TEST_F(SessionTest, OnlyOneOfTwoAgentsGetsTheNode) {
    FakeDaemon daemon{shell("true"), {}};
    const auto one = start(daemon);
    const auto two = start(daemon);
    ASSERT_TRUE(daemon.run_until([&] { return one->ended() && two->ended(); }));
    EXPECT_THAT((std::vector{one->code(), two->code()}), testing::UnorderedElementsAre(0, 3));
    EXPECT_EQ(daemon.count<wire::Started>(), 1U);
    const auto later = start(daemon);
    EXPECT_EQ(later->code(), 3) << "also when the first has ended";
    EXPECT_THAT(later->log(), HasSubstr("this node was claimed before"));
}

TEST_F(SessionTest, TwoNodesGetTheMasterOfTheFirst) {
    JobSpec spec = shell("echo $RANK $NODE_RANK $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT");
    FakeDaemon::Options options;
    options.nodes = 2;
    FakeDaemon daemon{spec, options};
    const auto zero = start(daemon, 0);
    const auto one = start(daemon, 1);
    ASSERT_TRUE(daemon.run_until([&] { return zero->ended() && one->ended(); })) << zero->log();
    const auto joins = daemon.all<wire::Join>();
    ASSERT_THAT(joins, SizeIs(2));
    EXPECT_NE(joins[0].port, joins[1].port);
    const std::string master = rank_log(0).substr(rank_log(0).rfind(' ') + 1);
    EXPECT_THAT(rank_log(0), testing::StartsWith("0 0 0 127.0.0.1:"));
    EXPECT_EQ(rank_log(1), "1 1 0 " + master);
}

TEST_F(SessionTest, RankZeroCanBindTheHeldPortAndNobodyElseCouldBefore) {
    FakeDaemon::Options options;
    options.start = false;
    JobSpec spec = shell("");
    spec.command = {"/usr/bin/python3", "-c",
                    "import os,socket; s=socket.socket(); "
                    "s.bind(('', int(os.environ['MASTER_PORT']))); s.listen(); print('bound')"};
    FakeDaemon daemon{spec, options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Ready>() == 1; });
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(daemon.all<wire::Join>()[0].port));
    EXPECT_NE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
    daemon.send(0, wire::Start{1});
    ASSERT_EQ(code_of(daemon, *agent), 0);
    EXPECT_EQ(rank_log(0), "bound\n");
}

}  // namespace
}  // namespace lockstep::test
