#include "job/agent/ranks/rank_identity.hpp"

#include "job/base/unique_fd.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep {
namespace {

std::string environment(std::initializer_list<const char*> entries) {
    std::string out;
    for (const char* entry : entries) {
        out += entry;
        out += '\0';
    }
    return out;
}

TEST(RankIdentity, EachLaunchersVariablesAreRead) {
    EXPECT_EQ(identity_in_environment(environment(
                  {"PATH=/bin", "RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=8", "GROUP_RANK=2"})),
              (RankIdentity{5, 1, 8}));
    EXPECT_EQ(identity_in_environment(environment(
                  {"PADDLE_TRAINER_ID=3", "PADDLE_RANK_IN_NODE=1", "PADDLE_TRAINERS_NUM=4"})),
              (RankIdentity{3, 1, 4}));
    EXPECT_EQ(
        identity_in_environment(environment(
            {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_LOCAL_RANK=0"})),
        (RankIdentity{1, 0, 2}));
    EXPECT_EQ(identity_in_environment(environment({"HOROVOD_RANK=0", "HOROVOD_SIZE=2"})),
              (RankIdentity{0, -1, 2}));
}

TEST(RankIdentity, WhatIsNoRankIsNone) {
    EXPECT_FALSE(identity_in_environment(environment({"PADDLE_RANK=1", "NODE_RANK=1", "MY_RANK=3"}))
                     .known());
    EXPECT_FALSE(identity_in_environment(environment({"RANK=", "WORLD_SIZE=4"})).known());
    EXPECT_FALSE(identity_in_environment(environment({"RANK=-1"})).known());
    EXPECT_FALSE(identity_in_environment("RANK").known());
}

TEST(RankIdentity, ARankOfThisNodeIsFoundByItsRankThenByItsLocalRank) {
    EXPECT_EQ(local_rank_of({5, 1, 8}, 4, 4), 1);
    EXPECT_EQ(local_rank_of({7, -1, 8}, 4, 4), 3);
    // torchrun with --rdzv-backend c10d numbers the nodes in the order in which they come.
    EXPECT_EQ(local_rank_of({1, 1, 8}, 4, 4), 1);
    EXPECT_EQ(local_rank_of({8, 4, 16}, 4, 4), std::nullopt);
    EXPECT_EQ(local_rank_of({9, -1, 8}, 4, 4), std::nullopt);
    EXPECT_EQ(local_rank_of({}, 0, 1), std::nullopt);
}

TEST(RankIdentity, LaunchersMarksAreReadAndOtherBracketsAreNot) {
    const auto torchrun = marked_line("[default3]:loss: 0.5\n");
    ASSERT_TRUE(torchrun);
    EXPECT_EQ(torchrun->identity.local_rank, 3);
    EXPECT_EQ(torchrun->text, "loss: 0.5\n");
    const auto tagged = marked_line("[1,12]<stdout>:loss: 0.5");
    ASSERT_TRUE(tagged);
    EXPECT_EQ(tagged->identity.rank, 12);
    EXPECT_EQ(tagged->text, "loss: 0.5");
    EXPECT_EQ(marked_line("[2]<stderr>:x")->identity.rank, 2);
    // torch itself, before each line of a traceback: the rank among all.
    EXPECT_EQ(marked_line("[rank7]: Traceback")->identity.rank, 7);
    for (const char* line : {"[2024-05-01 10:00:00,123] loss 1", "[INFO]: loss 1", "[]: x", "[3",
                             "[0.4753]: x", "loss [default0]:1", "[W 12]: x", ""}) {
        EXPECT_FALSE(marked_line(line)) << line;
    }
}

TEST(RankIdentity, AnEndIsKnownBeforeAndWhereTheKernelTellsAlsoAfterTheParentHasReaped) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(7);
    }
    const UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, child, 0U))};
    ASSERT_TRUE(pidfd);
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    const auto zombie = end_of_process(child, pidfd.get());
    ASSERT_TRUE(zombie);
    EXPECT_EQ(zombie->exit_code, 7);
    EXPECT_EQ(zombie->signal, 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    if (const auto reaped = end_of_process(child, pidfd.get())) {
        EXPECT_EQ(reaped->exit_code, 7);
    }
}

TEST(RankIdentity, ASignalIsNoExitCodeAndALivingProcessHasNoEnd) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    const UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, child, 0U))};
    EXPECT_FALSE(end_of_process(child, pidfd.get()));
    const auto mine = children_of(::getpid());
    EXPECT_NE(std::find(mine.begin(), mine.end(), child), mine.end());
    EXPECT_EQ(parent_of(child), ::getpid());
    ::kill(child, SIGKILL);
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    const auto end = end_of_process(child, pidfd.get());
    ASSERT_TRUE(end);
    EXPECT_EQ(end->signal, SIGKILL);
    EXPECT_EQ(end->exit_code, -1);
    ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lockstep
