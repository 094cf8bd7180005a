// What cannot be provoked from outside: a rank that outlives SIGKILL, and a start that fails
// halfway.
#include "job/agent/ranks/rank_group.hpp"

#include "job/agent/machine/start_cause.hpp"
#include "tests/support/temporary_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <optional>

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class RankGroupTest : public testing::Test {
  protected:
    void make(RankGroup::Timing timing) {
        RankGroup::Handlers handlers;
        handlers.captured = [](std::int32_t, std::vector<RankReport>) {};
        handlers.ending = [](std::int32_t) {};
        handlers.exited = [this](wire::Exited exited) { exits.push_back(std::move(exited)); };
        handlers.unkillable = [this](std::int32_t, std::string why) {
            unkillable = std::move(why);
        };
        handlers.all_ended = [this] { ended = true; };
        handlers.oom_kills = [this] { return kills; };
        handlers.warned = [this](std::int32_t rank, std::string message) {
            EXPECT_TRUE(exits.empty()) << "of a job that has ended nothing is heard";
            warnings.emplace_back(rank, std::move(message));
        };
        group.emplace(tasks, handlers, timing);
    }
    RankGroup::RankPlan plan(std::int32_t rank, const std::string& script) {
        RankGroup::RankPlan out;
        out.rank = rank;
        out.process.agent_program = LOCKSTEP_AGENT;
        out.process.program = "/bin/sh";
        out.process.argv = {"sh", "-c", script};
        out.process.directory = folder.path().string();
        out.log = folder.path() / wire::rank_log_name(rank);
        return out;
    }
    TemporaryFolder folder;
    net::io_context io{1};
    TaskGroup tasks{io};
    std::optional<RankGroup> group;
    std::vector<wire::Exited> exits;
    std::string unkillable;
    std::vector<std::pair<std::int32_t, std::string>> warnings;
    bool ended = false;
    std::int64_t kills = 5;  // of the kernel, for memory
};

TEST_F(RankGroupTest, ARankThatOutlivesKillIsGivenUpAndSaidSo) {
    RankGroup::Timing timing;
    timing.after_kill = std::chrono::milliseconds{0};  // no process ends as fast as that
    make(timing);
    std::vector<RankGroup::RankPlan> plans;
    plans.push_back(plan(0, "sleep 600"));
    const auto started = group->start(1, std::move(plans));
    ASSERT_TRUE(started);
    group->stop(std::chrono::milliseconds{0});
    io.run();
    EXPECT_TRUE(ended);
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_TRUE(exits[0].stopped);
    EXPECT_EQ(exits[0].signal, SIGKILL);
    EXPECT_THAT(unkillable, HasSubstr("of rank 0 does not end after SIGKILL"));
    EXPECT_FALSE(group->running());
    ::waitpid(static_cast<pid_t>((*started)[0].pid), nullptr, 0);
}

TEST_F(RankGroupTest, AStartThatFailsHalfwayStopsWhatWasStarted) {
    make(RankGroup::Timing{});
    std::vector<RankGroup::RankPlan> plans;
    plans.push_back(plan(0, "sleep 600"));
    plans.push_back(plan(1, "sleep 600"));
    plans[1].log = folder.path() / "no/such/folder.log";
    const auto started = group->start(1, std::move(plans));
    ASSERT_FALSE(started);
    EXPECT_THAT(started.error().message, HasSubstr("rank 1: rank log: "));
    io.run();
    EXPECT_TRUE(ended);
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].rank, 0);
    EXPECT_TRUE(exits[0].stopped);
}

TEST_F(RankGroupTest, ANodeWithoutFreeDescriptorsIsNotTheJobsFault) {
    make(RankGroup::Timing{});
    std::vector<RankGroup::RankPlan> plans;
    plans.push_back(plan(0, "true"));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto started = group->start(1, std::move(plans));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_FALSE(started);
    EXPECT_THAT(started.error().message, HasSubstr("Too many open files"));
    EXPECT_EQ(cause_of_start(started.error()), CauseClass::node_lost);
}

TEST_F(RankGroupTest, AKillForMemoryOfAProcessThatIsNoRankIsNotTheRanks) {
    make(RankGroup::Timing{});
    for (const bool own : {false, true}) {
        std::vector<RankGroup::RankPlan> plans;
        plans.push_back(plan(0, "kill -9 $$"));
        ASSERT_TRUE(group->start(1, std::move(plans)));
        group->other_was_killed();  // by a person
        ++kills;
        group->other_was_killed();
        kills += own ? 1 : 0;
        io.restart();
        io.run();
        EXPECT_EQ(exits.back().signal, SIGKILL);
        EXPECT_EQ(exits.back().oom, own);
    }
}

// Such a rank ended with 0 and its job succeeded without a word.
TEST_F(RankGroupTest, OutputThatAFullDiskHasLostIsWarnedOfBeforeTheRanksEnd) {
    if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
        GTEST_SKIP() << "needs the right to mount a small tmpfs";
    }
    make(RankGroup::Timing{});
    std::vector<RankGroup::RankPlan> plans;
    plans.push_back(plan(3, "head -c 200000 /dev/zero"));
    ASSERT_TRUE(group->start(1, std::move(plans)));
    io.run();
    EXPECT_THAT(exits, SizeIs(1));
    ASSERT_THAT(warnings, SizeIs(1));
    EXPECT_EQ(warnings[0].first, 3);
    EXPECT_THAT(warnings[0].second,
                testing::MatchesRegex("rank 3 lost [0-9]+ bytes of its output: the disk was full"));
    group.reset();
    ::umount2(folder.path().c_str(), MNT_DETACH);
}

// The agent waited for the file server with it, and its node was lost.
TEST_F(RankGroupTest, ARankWhoseLogHangsEndsAndIsWarnedOf) {
    const auto log = folder.path() / wire::rank_log_name(3);
    ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
    const UniqueFd reader{::open(log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    ASSERT_TRUE(reader);
    make(RankGroup::Timing{});
    std::vector<RankGroup::RankPlan> plans;
    plans.push_back(plan(3, "head -c 4000000 /dev/zero"));
    ASSERT_TRUE(group->start(1, std::move(plans)));
    io.run();
    ASSERT_THAT(exits, SizeIs(1));
    EXPECT_EQ(exits[0].exit_code, 0);
    ASSERT_THAT(warnings, SizeIs(1));
    EXPECT_THAT(warnings[0].second,
                testing::MatchesRegex("rank 3 lost [0-9]+ bytes of its output: the file system did "
                                      "not answer in time"));
    // What has waited, and the notice of what has not.
    std::string text;
    while (!text.ends_with("in time]\n")) {
        std::vector<char> buffer(1U << 20U);
        pollfd readable{reader.get(), POLLIN, 0};
        ::poll(&readable, 1, -1);
        const auto got = ::read(reader.get(), buffer.data(), buffer.size());
        text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }
    const int before = LooseThread::abandoned();
    group.reset();
    EXPECT_EQ(LooseThread::abandoned(), before) << "its thread goes on, and ends";
}

TEST_F(RankGroupTest, AnotherGenerationUsesTheSameGroup) {
    make(RankGroup::Timing{});
    for (std::int32_t generation = 1; generation <= 2; ++generation) {
        std::vector<RankGroup::RankPlan> plans;
        plans.push_back(plan(0, "echo hello; exit 3"));
        ASSERT_TRUE(group->start(generation, std::move(plans)));
        io.restart();
        io.run();
        ASSERT_THAT(exits, SizeIs(static_cast<std::size_t>(generation)));
        EXPECT_EQ(exits.back().generation, generation);
        EXPECT_EQ(exits.back().exit_code, 3);
    }
    EXPECT_EQ(text_of(folder.path() / wire::rank_log_name(0)),
              "hello\n[lockstep: generation 2 starts]\nhello\n");
}

}  // namespace
}  // namespace lockstep::test
