// Messages of another generation than the one that is here: a late ABORT ends nobody, a START of
// another one starts nobody. A real agent; EXAMINE, which it answers in order, shows that the stale
// message has been dealt with.
#include "tests/unit/agent/agent_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

namespace lockstep::test {
namespace {

class StaleTest : public AgentTest {
  protected:
    static wire::World world_of(const FakeDaemon& daemon, std::int32_t generation) {
        wire::World world;
        world.generation = generation;
        world.world_size = 1;
        world.local_ranks = 1;
        world.master_address = "127.0.0.1";
        world.master_port = daemon.all<wire::Join>().back().port;
        world.hosts = {"host-0"};
        return world;
    }
    // Everything that was sent before has been handled.
    void round_trip(FakeDaemon& daemon, std::int32_t generation) {
        const std::size_t before = daemon.count<wire::Examined>();
        wire::Examine examine;
        examine.generation = generation;
        daemon.send(0, examine);
        ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Examined>() == before + 1; }));
    }
    wire::ResultFile result() const {
        const auto file =
            wire::decode_result_file(text_of(folder.path() / wire::result_file_name(0)));
        EXPECT_TRUE(file.has_value());
        return file ? *file : wire::ResultFile{};
    }
    FakeDaemon::Options patient() const {
        FakeDaemon::Options options;
        options.stop_when_done = false;
        return options;
    }
};

// A newer daemon's, say. It must live to say so.
TEST_F(StaleTest, ADocumentThatIsNotUnderstoodIsAFaultAndNoCrash) {
    FakeDaemon daemon{shell("exit 0"), patient()};
    daemon.welcome.spec["name"] = 7;
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Fault>() == 1; });
    EXPECT_THAT(daemon.all<wire::Fault>()[0].message, testing::HasSubstr("/name"));
    // The agent looks after its ranks now and then.
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Beat>() > 2; }));
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_GE(code_of(daemon, *agent), 0) << "not by a signal";
}

TEST_F(StaleTest, AnAbortOfTheLastGenerationLeavesTheRanksOfThisOne) {
    FakeDaemon daemon{shell("exec sleep 600"), patient()};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    daemon.send(0, wire::Abort{1, "a test", 5000});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Done>() == 1; }));
    daemon.generation = 2;
    daemon.send(0, world_of(daemon, 2));
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 2; }));
    EXPECT_FALSE(std::filesystem::exists(folder.path() / wire::result_file_name(0)))
        << "what the first one's ranks did must not speak for these";
    daemon.send(0, wire::Abort{1, "late", 0});
    daemon.send(0, wire::Abort{3, "early", 0});
    round_trip(daemon, 2);
    const auto state = daemon.all<wire::Examined>().back().ranks;
    ASSERT_EQ(state.size(), 1U);
    EXPECT_NE(state[0].state, "X");
    EXPECT_NE(state[0].state, "Z");
    daemon.send(0, wire::Abort{2, "its own", 5000});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Done>() == 2; }));
    const auto exits = daemon.all<wire::Exited>();
    ASSERT_EQ(exits.size(), 2U) << "each generation's rank ended once";
    EXPECT_EQ(exits[1].generation, 2);
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

TEST_F(StaleTest, AStartOfAnotherGenerationStartsNobody) {
    FakeDaemon::Options options = patient();
    options.start = false;
    FakeDaemon daemon{shell("exec sleep 600"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Ready>() == 1; });
    daemon.send(0, wire::Start{2});
    daemon.send(0, wire::Start{0});
    round_trip(daemon, 1);
    EXPECT_TRUE(daemon.all<wire::Examined>().back().ranks.empty());
    EXPECT_EQ(daemon.count<wire::Started>(), 0U);
    EXPECT_EQ(rank_log(0), "");
    daemon.send(0, wire::Start{1});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 1; }));
    daemon.send(0, wire::Start{1});  // said again: it runs already
    round_trip(daemon, 1);
    EXPECT_EQ(daemon.count<wire::Started>(), 1U);
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

TEST_F(StaleTest, AWorldOfAnOlderGenerationIsNotTaken) {
    FakeDaemon daemon{shell("exec sleep 600"), patient()};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    daemon.send(0, wire::Abort{1, "a test", 5000});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Done>() == 1; }));
    daemon.generation = 2;
    daemon.send(0, world_of(daemon, 2));
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 2; }));
    daemon.send(0, wire::Abort{2, "a test", 5000});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Done>() == 2; }));
    const std::size_t ready = daemon.count<wire::Ready>();
    daemon.send(0, world_of(daemon, 1));
    round_trip(daemon, 2);
    EXPECT_EQ(daemon.count<wire::Ready>(), ready);
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

// A daemon that has lost sight of what runs here: two generations never write at a time.
TEST_F(StaleTest, AWorldThatComesWhileRanksLiveWaitsForTheirEnd) {
    FakeDaemon daemon{shell("trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.05; done"),
                      patient()};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    daemon.generation = 2;
    daemon.send(0, world_of(daemon, 2));
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Ready>() == 2; }));
    const auto before = static_cast<pid_t>(daemon.all<wire::Started>()[0].ranks.at(0).pid);
    EXPECT_NE(::kill(before, 0), 0) << "a rank of the first one lives";
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::Started>() == 2; }));
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

// At once, for whoever looks after a crash of this machine, and not when it leaves.
TEST_F(StaleTest, TheResultOfANodeIsWrittenWhenItsRanksEnd) {
    FakeDaemon daemon{shell("exit 7"), patient()};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Done>() == 1; });
    const auto file = result();
    EXPECT_EQ(file.generation, 1);
    ASSERT_EQ(file.exits.size(), 1U);
    EXPECT_EQ(file.exits[0].exit_code, 7);
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

// Without it the scheduler's driver takes the agent for lost.
TEST_F(StaleTest, TheResultOfANodeThatNeverHadRanksIsWrittenWhenItLeaves) {
    FakeDaemon::Options options = patient();
    options.start = false;
    FakeDaemon daemon{shell("true"), options};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Ready>() == 1; });
    daemon.send(0, wire::Stop{"not needed", 0});
    ASSERT_EQ(code_of(daemon, *agent), 0);
    EXPECT_TRUE(result().exits.empty());
}

TEST_F(StaleTest, ARankThatDoesNotCatchTheSignalIsNamedAndGetsNoSignal) {
    JobSpec spec = shell("exec sleep 600");
    FakeDaemon daemon{spec, patient()};
    const auto agent = start_until(daemon, [&] { return daemon.count<wire::Started>() == 1; });
    daemon.send(0, wire::AskSave{1, 5});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::CanSave>() == 1; }));
    const auto answer = daemon.all<wire::CanSave>()[0];
    EXPECT_EQ(answer.round, 5);
    EXPECT_EQ(answer.rank, 0);
    EXPECT_EQ(answer.problem, "does not catch SIGUSR2");
    daemon.send(0, wire::Save{1});  // a daemon that does not ask
    agent->signal(SIGURG);          // Slurm, before the time limit
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::SaveAsked>() == 1; }));
    EXPECT_EQ(daemon.all<wire::SaveAsked>()[0].rank, 0);
    daemon.send(0, wire::AskSave{2, 6});  // of no generation that is here: no answer
    round_trip(daemon, 1);
    EXPECT_EQ(daemon.count<wire::Exited>(), 0U);
    EXPECT_EQ(daemon.count<wire::CanSave>(), 1U);
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

// Below a shell that does not catch it the program that does gets it.
TEST_F(StaleTest, TheSignalGoesToTheProcessThatCatchesIt) {
    FakeDaemon daemon{
        shell("bash -c 'trap \"echo saved\" USR2; echo ready; while :; do sleep 0.05; done'; true"),
        patient()};
    const auto agent = start_until(daemon, [&] { return rank_log(0) == "ready\n"; });
    daemon.send(0, wire::AskSave{1, 1});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.count<wire::CanSave>() == 1; }));
    EXPECT_EQ(daemon.all<wire::CanSave>()[0].rank, -1);
    daemon.send(0, wire::Save{1});
    EXPECT_TRUE(daemon.run_until([&] { return rank_log(0) == "ready\nsaved\n"; })) << rank_log(0);
    daemon.send(0, wire::Stop{"over", 1000});
    EXPECT_EQ(code_of(daemon, *agent), 0);
}

}  // namespace
}  // namespace lockstep::test
