// The agent and its daemon: claim, rendezvous, lost connections, orders to stop.
#include "job/agent/agent_session.hpp"
#include "tests/unit/agent/agent_fixture.hpp"
#include "tests/unit/gpu/gpu_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>
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

// Of an attempt that Slurm has twice the second copy is ended, its agents with it.
TEST_F(SessionTest, ACopyThatIsEndedBeforeItHadRanksLeavesTheResultOfTheOneThatHad) {
    FakeDaemon::Options options;
    options.nodes = 2;  // the other does not come: no world
    FakeDaemon daemon{shell("true"), options};
    const auto path = folder / wire::result_file_name(0);
    wire::ResultFile kept;
    kept.incarnation = "the kept one";
    kept.generation = 1;
    ASSERT_TRUE(write_file_atomic(path, wire::encode_result_file(kept)));
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Join>() == 1; });
    agent->signal(SIGTERM);
    ASSERT_EQ(code_of(daemon, *agent), 0);
    const auto left = wire::decode_result_file(text_of(path));
    ASSERT_TRUE(left);
    EXPECT_EQ(left->incarnation, "the kept one");
}

TEST_F(SessionTest, TheUnauthorizedIsRetriedBecauseTheDaemonMayBeStarting) {
    FakeDaemon daemon{shell("true"), {}};
    daemon.options.refuse_upgrades = 3;
    EXPECT_EQ(run(daemon), 0);
    EXPECT_GE(daemon.tickets.size(), 4U);  // and one more for a connection that took too long
    EXPECT_EQ(daemon.count<wire::Exited>(), 1U);
}

TEST_F(SessionTest, AFencedAgentKillsItsRanksAndEndsWithItsOwnCode) {
    FakeDaemon daemon{shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"), {}};
    const auto agent = start_until(
        daemon, [&] { return rank_log(0) == "ready\n" && daemon.count<wire::Started>() == 1; });
    const auto pid = static_cast<pid_t>(daemon.all<wire::Started>()[0].ranks[0].pid);
    daemon.send(0, wire::Fenced{1, "superseded"});
    ASSERT_EQ(code_of(daemon, *agent), 4);
    EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(SessionTest, AnAgentThatHasSaidAllLeavesWhenTheDaemonTakesNoMore) {
    FakeDaemon::Options options;
    options.acknowledge = false;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("true"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Done>() == 1; });
    // Together: it waits a while for the acknowledgements once it is to stop.
    daemon.send(0, wire::Stop{"the job is over", 0});
    daemon.send(0, wire::Fenced{1, "the attempt is over"});
    ASSERT_EQ(code_of(daemon, *agent), 0) << "its result is written, nothing runs";
    EXPECT_THAT(agent->log(),
                testing::Not(HasSubstr("leaving with messages that were not acknowledged")));
}

TEST_F(SessionTest, TermStopsTheRanksAndReportsThem) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("exec sleep 600"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    agent->signal(SIGTERM);
    ASSERT_EQ(code_of(daemon, *agent), 1) << "its ranks were ended, and nobody said more";
    ASSERT_THAT(daemon.all<wire::Exited>(), SizeIs(1));
    EXPECT_TRUE(daemon.all<wire::Exited>()[0].stopped);
    EXPECT_EQ(daemon.count<wire::Done>(), 1U);
    ASSERT_EQ(daemon.count<wire::Bye>(), 1U) << "or its daemon would wait for it to come back";
    EXPECT_EQ(daemon.all<wire::Bye>()[0].reason, "it was told to end (SIGTERM)");
    EXPECT_GT(daemon.all<wire::Bye>()[0].event, daemon.all<wire::Done>()[0].event);
}

// Slurm says so twice when a time limit has passed, to the step and to the job: the second may come
// while the agent leaves, or when it no longer listens.
TEST_F(SessionTest, AnAgentThatIsToldToEndAgainWhileItLeavesEnds) {
    constexpr int kAgents = 12;  // one in two or three met the second in the moment that counts
    for (int turn = 0; turn < kAgents; ++turn) {
        const TemporaryFolder own;
        FakeDaemon daemon{shell("exec sleep 600"), {}};
        daemon.write_attempt_file(own.path());
        AgentProcess agent{own.path()};
        ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 1; }));
        std::atomic<bool> over{false};
        std::thread again{[&] {
            while (!over) {
                agent.signal(SIGTERM);
                // Nothing is waited for here: one signal after the other finds more moments than
                // one that is pending all the time.
                std::this_thread::sleep_for(std::chrono::microseconds{50});
            }
        }};
        // Not reaped while it is signalled.
        const bool ended = daemon.run_until([&] {
            siginfo_t info{};
            return ::waitid(P_PID, static_cast<id_t>(agent.pid()), &info,
                            WEXITED | WNOHANG | WNOWAIT) == 0 &&
                   info.si_pid == agent.pid();
        });
        over = true;
        again.join();
        ASSERT_TRUE(ended) << agent.log().substr(0, 4096);
        EXPECT_THAT(agent.code(), testing::AnyOf(1, -SIGTERM));
    }
}

TEST_F(SessionTest, AnAgentThatIsToldToStopSaysNoBye) {
    FakeDaemon daemon{shell("true"), {}};
    ASSERT_EQ(run(daemon), 0);
    EXPECT_EQ(daemon.count<wire::Done>(), 1U);
    EXPECT_EQ(daemon.count<wire::Bye>(), 0U);
}

TEST_F(SessionTest, ADaemonThatSaysItGoesIsWaitedForWithoutAWarning) {
    FakeDaemon daemon{shell("until [ -e go ]; do sleep 0.02; done"), {}};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    daemon.send(0, wire::Drain{"lockstepd is being stopped"});
    // The next beat was made after DRAIN had been written.
    const std::size_t beats = daemon.count<wire::Beat>();
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Beat>() > beats + 1; }));
    daemon.kill();
    daemon.restart();
    daemon.write_attempt_file(folder.path());
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Hello>() == 2; }));
    ASSERT_TRUE(write_file_atomic(folder / "go", ""));
    ASSERT_EQ(code_of(daemon, *agent), 0);
    EXPECT_THAT(agent->log(), HasSubstr("the daemon is being stopped"));
    EXPECT_THAT(agent->log(), testing::Not(HasSubstr("connection to the daemon lost")));
}

TEST_F(SessionTest, TheTableOfALargeWorldIsAskedForOnce) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("echo $LOCKSTEP_NODES $LOCKSTEP_HOSTS; exec sleep 600"), options};
    // What each generation's rank prints is waited for: one that is ended before leaves no log.
    const auto agent = start_until(daemon, [&] { return rank_log(0).ends_with("\n"); });
    wire::World world;
    world.world_size = 2;
    world.local_ranks = 1;
    world.nodes = 2;
    world.table = "t1";
    world.master_address = "127.0.0.1";
    world.master_port = daemon.all<wire::Join>()[0].port;
    for (const std::int32_t generation : {2, 3}) {
        daemon.send(0, wire::Abort{generation - 1, "a test", 5000});
        const auto count = static_cast<std::size_t>(generation);
        ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Join>() == count; }));
        daemon.generation = world.generation = generation;
        daemon.send(0, world);
        if (generation == 2) {
            ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::TableRequest>() == 1; }));
            EXPECT_EQ(daemon.all<wire::TableRequest>()[0].generation, 2);
            EXPECT_EQ(daemon.count<wire::Ready>(), 1U) << "not before it knows the hosts";
            daemon.send(0, wire::Table{"t1", {"host-a", "host-b"}});
        }
        ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Ready>() == count; }))
            << agent->log();
        daemon.send(0, wire::Start{generation});
        const std::string printed =
            "[lockstep: generation " + std::to_string(generation) + " starts]\n2 host-a,host-b\n";
        ASSERT_TRUE(daemon.run_until([&] {
            return daemon.count<wire::Started>() == count && rank_log(0).ends_with(printed);
        })) << rank_log(0)
            << agent->log();
    }
    EXPECT_EQ(daemon.count<wire::TableRequest>(), 1U) << "it is the same table";
    daemon.send(0, wire::Stop{"over", 1000});
    ASSERT_EQ(code_of(daemon, *agent), 0);
}

TEST_F(SessionTest, AnAbortWhileTheTableIsAwaitedIsAnsweredWithJoin) {
    FakeDaemon::Options options;
    options.stop_when_done = false;
    FakeDaemon daemon{shell("exec sleep 600"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    daemon.send(0, wire::Abort{1, "a test", 5000});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Join>() == 2; }));
    wire::World world;
    world.generation = 2;
    world.world_size = 2;
    world.local_ranks = 1;
    world.nodes = 2;
    world.table = "t1";
    daemon.send(0, world);
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::TableRequest>() == 1; }));
    daemon.send(0, wire::Abort{2, "a test", 5000});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Join>() == 3; })) << agent->log();
    EXPECT_EQ(daemon.all<wire::Join>()[2].generation, 1);
    EXPECT_EQ(daemon.count<wire::Ready>(), 1U);
    daemon.send(0, wire::Stop{"over", 1000});
    ASSERT_EQ(code_of(daemon, *agent), 0);
}

TEST(FirstConnect, IsPacedInLargeJobsOnly) {
    EXPECT_EQ(first_connect_delay(511, 512).count(), 0);
    EXPECT_EQ(first_connect_delay(0, 16'384).count(), 0);
    EXPECT_EQ(first_connect_delay(4'096, 16'384).count(), 250);
    EXPECT_EQ(first_connect_delay(16'383, 16'384).count(), 999);
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

// Xid 79 and 119: the thread that watches the GPUs may be in a call that never comes back.
TEST_F(SessionTest, ADriverThatHangsDoesNotHoldTheAgentsEnd) {
    const GpuScript script{"gpus 2\n"};
    ::setenv("LD_LIBRARY_PATH", FAKE_NVML_FOLDER, 1);
    FakeDaemon daemon{
        shell("while [ ! -e " + (folder / "end").string() + " ]; do sleep 0.05; done"), {}};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    ::unsetenv("LD_LIBRARY_PATH");
    script.write("gpus 2\nhang\n");
    ASSERT_TRUE(daemon.run_until([&] { return script.hangs(); })) << agent->log();
    std::ofstream{folder / "end"} << "";
    EXPECT_EQ(code_of(daemon, *agent), 0);
    EXPECT_THAT(agent->log(), HasSubstr("the GPU driver does not answer"));
}

}  // namespace
}  // namespace lockstep::test
